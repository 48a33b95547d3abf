#include "worker_lib/base/process.h"

#include <pthread.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

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

bool is_local_lack(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM ||
         error == EADDRNOTAVAIL;
}

std::string error_text(int error) {
  std::string text = std::strerror(error);
  rlimit limit{};
  if (error == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
    text += " (limit " + std::to_string(limit.rlim_cur) + "); raise it with ulimit -n";
  if (error == ENFILE) text += "; raise the host's limit fs.file-max";
  if (error == EADDRNOTAVAIL) text += "; widen the host's net.ipv4.ip_local_port_range";
  return text;
}

void at_exit(void (*action)()) {
  exit_action = action;
  renew_at_exit();
}

void renew_at_exit() { std::atexit(run_exit_action); }

}  // namespace drun::worker
