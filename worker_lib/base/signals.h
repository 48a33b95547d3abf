// edge. Signal handling: threads started by worker_lib block all signals, and SIGPIPE is ignored.
#pragma once

#include <csignal>

namespace drun::worker {

// Blocks all signals of the calling thread during its lifetime, so that threads started meanwhile
// have them blocked and the program's handlers run on the program's threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// Gloo writes without MSG_NOSIGNAL, so a dead peer would kill this process. Keeps a handler of the
// program.
inline void ignore_default_sigpipe() {
  struct sigaction now {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
      now.sa_handler == SIG_DFL) {
    std::signal(SIGPIPE, SIG_IGN);
  }
}

}  // namespace drun::worker
