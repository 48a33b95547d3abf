// A replacement for ssh, for jobs whose hosts are all this machine. It needs no sshd and no key,
// and runs the same command.
#pragma once

#include <string>

#include "tests/support/job.h"

namespace drun::testing {

class PlainSsh {
 public:
  // A login runs `before` and then drun's command. $1 is the host.
  explicit PlainSsh(const std::string& before = "");

  const TemporaryDirectory& directory() const { return directory_; }
  // `drun --hosts=<hosts> <options> sh -c <script>`, in directory().
  Launch launch(const std::string& hosts, const Words& options, const std::string& script) const;

 private:
  TemporaryDirectory directory_;
};

}  // namespace drun::testing
