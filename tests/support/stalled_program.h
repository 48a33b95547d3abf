// A program whose exec blocks until the test releases it, as on a cold shared file system.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/process.h"

namespace drun::test {

// A copy of /bin/true with a write lease on it. The lease makes open(2) wait for the holder
// (fcntl(2), F_SETLEASE), as if another client of a network file system had the file open. The
// kernel breaks a lease after 45 s.
class StalledProgram {
 public:
  StalledProgram() {
    lease_breaks_ = 0;
    std::signal(SIGIO, [](int) { lease_breaks_ = lease_breaks_ + 1; });
    std::filesystem::copy_file("/bin/true", path_);
    fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    is_stalled_ = fcntl(fd_, F_SETLEASE, F_WRLCK) == 0;
  }
  StalledProgram(const StalledProgram&) = delete;
  StalledProgram& operator=(const StalledProgram&) = delete;
  ~StalledProgram() {
    release();
    std::signal(SIGIO, SIG_DFL);
  }

  bool is_stalled() const { return is_stalled_; }
  // Whether something has tried to execute it.
  static bool is_waited_for() { return lease_breaks_ > 0; }
  const std::string& path() const { return path_; }
  void release() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  static inline volatile std::sig_atomic_t lease_breaks_ = 0;

  testing::TemporaryDirectory directory_;
  const std::string path_ = directory_ / "true";
  int fd_ = -1;
  bool is_stalled_ = false;
};

inline bool skips(const StalledProgram& program) {
  if (program.is_stalled()) return false;
  WARN("skipped: the file system of /tmp has no leases");
  return true;
}

}  // namespace drun::test
