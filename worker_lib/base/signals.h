// edge. What worker_lib does about signals: threads it starts take none, and SIGPIPE is ignored.
#pragma once

#include <csignal>

namespace drun::worker {

// Blocks all signals of the calling thread while it lives, so that threads started meanwhile begin
// with all blocked and the program's handlers run on the program's threads.
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

// Gloo writes without MSG_NOSIGNAL: a dead peer would kill us. A handler of the program's stays.
inline void ignore_default_sigpipe() {
  struct sigaction now {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
      now.sa_handler == SIG_DFL) {
    std::signal(SIGPIPE, SIG_IGN);
  }
}

}  // namespace drun::worker
