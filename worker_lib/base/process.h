// edge. State of the whole process: signals, forks, limits, and its exit. Thread: any.
#pragma once

#include <csignal>
#include <string>

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
void ignore_default_sigpipe();

// The number of forks between the first call in an ancestor and this process. Threads, connections
// and shared memory of a group belong to the process that created it.
int fork_generation();

// Whether the error means that this host has no descriptor, port or memory for a connection.
bool is_local_lack(int error);
// "Too many open files (limit 1024); raise it with ulimit -n".
std::string error_text(int error);

// Calls `action` when the process exits normally. Replaces an earlier action.
void at_exit(void (*action)());
// Call after a library that has its own exit handlers was loaded: the action then runs before them.
void renew_at_exit();

}  // namespace drun::worker
