// A mounted file system that can be made to hang (tests/workers/stalling_fs.cc).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tests/support/process.h"

namespace drun::test {

class StallingFileSystem {
 public:
  StallingFileSystem();
  ~StallingFileSystem();
  StallingFileSystem(const StallingFileSystem&) = delete;
  StallingFileSystem& operator=(const StallingFileSystem&) = delete;

  bool is_mounted() const { return why_.empty(); }
  // The reason if it is not mounted.
  const std::string& why() const { return why_; }
  std::string operator/(std::string_view name) const { return mount_ + "/" + std::string(name); }

  // Makes every operation on it wait until resume().
  void stall() const;
  void resume() const;

  // Stops the process that serves it, until the destructor. A fatal signal ends a process that then
  // waits for it, as on NFS; after stall(), not even SIGKILL does.
  void stop_server();

 private:
  testing::TemporaryDirectory directory_;
  std::string mount_ = directory_.file("mount");
  std::string why_;
  std::optional<testing::Running> server_;
};

}  // namespace drun::test
