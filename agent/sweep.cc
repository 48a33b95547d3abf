#include "agent/sweep.h"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <ctime>

#include "agent/descendants.h"

namespace drun::agent {
namespace {

// A forker may be a step ahead of a look; then nobody's end tells us, and we look again after this.
constexpr timespec kLookAgain{.tv_sec = 0, .tv_nsec = 20'000'000};

// True when there is no child at all any more.
bool reap_ended() {
  siginfo_t info{};
  while (true) {
    info.si_pid = 0;
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG) < 0) return true;
    if (info.si_pid == 0) return false;
  }
}

}  // namespace

SweepResult sweep(std::span<const int> except, std::chrono::milliseconds limit) {
  sigset_t child_ended;
  sigemptyset(&child_ended);
  sigaddset(&child_ended, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child_ended, nullptr);
  const auto give_up_at = std::chrono::steady_clock::now() + limit;
  SweepResult left;
  while (!reap_ended()) {
    const Descendants found(except);
    left.count = 0;
    for (const ProcessStat& process : found.all()) {
      send_signal(process, SIGKILL);
      if (left.count < left.pids.size()) left.pids[left.count++] = process.pid;
    }
    const bool only_foreign = found.all().empty() && !except.empty();
    if (only_foreign || std::chrono::steady_clock::now() >= give_up_at) return left;
    sigtimedwait(&child_ended, nullptr, &kLookAgain);
  }
  left.count = 0;
  return left;
}

}  // namespace drun::agent
