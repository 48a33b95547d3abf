#include "worker_lib/base/process.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>

namespace drun::worker {
namespace {

std::atomic<int> generation = 0;
std::atomic<void (*)()> exit_action = nullptr;

void run_exit_action() {
  if (void (*const action)() = exit_action.exchange(nullptr)) action();
}

}  // namespace

void ignore_default_sigpipe() {
  struct sigaction now {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
      now.sa_handler == SIG_DFL) {
    std::signal(SIGPIPE, SIG_IGN);
  }
}

int fork_generation() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++generation; });
  static_cast<void>(registered);
  return generation;
}

void at_exit(void (*action)()) {
  exit_action = action;
  renew_at_exit();
}

void renew_at_exit() { std::atexit(run_exit_action); }

}  // namespace drun::worker
