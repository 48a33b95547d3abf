// edge. The default action on SIGTERM while it lives: forked children inherit handlers, and the
// test framework's allocates memory, so it is not one to be called at any moment. Thread: the
// test's only.
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
