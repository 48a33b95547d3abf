// edge. Restores the default action of SIGTERM while it exists. Forked children inherit handlers,
// and the test framework's handler allocates memory, which is not async-signal-safe.
#pragma once

#include <csignal>

namespace drun::test {

class DefaultSigterm {
 public:
  DefaultSigterm() : before_(std::signal(SIGTERM, SIG_DFL)) {}
  ~DefaultSigterm() { std::signal(SIGTERM, before_); }
  DefaultSigterm(const DefaultSigterm&) = delete;
  DefaultSigterm& operator=(const DefaultSigterm&) = delete;

 private:
  void (*before_)(int);
};

}  // namespace drun::test
