// edge. A limit on the descriptors of this process, for tests.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <string>

#include "rendezvous/base/unique_fd.h"

namespace drun::test {

// During its lifetime, this process can open at most `more` further descriptors.
class FewDescriptors {
 public:
  explicit FewDescriptors(int more) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit tight = before_;
    tight.rlim_cur = static_cast<rlim_t>(UniqueFd(::dup(STDERR_FILENO)).get() + more);
    setrlimit(RLIMIT_NOFILE, &tight);
    limit_ = std::to_string(tight.rlim_cur);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

  const std::string& limit() const { return limit_; }

 private:
  rlimit before_{};
  std::string limit_;
};

}  // namespace drun::test
