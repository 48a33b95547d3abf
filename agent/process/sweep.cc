#include "agent/process/sweep.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <ctime>
#include <new>

#include "agent/process/descendants.h"

namespace drun::agent {
namespace {

// A process that forks may be ahead of a look. Then no end reports it, so look again after this.
constexpr timespec kLookAgain{.tv_sec = 0, .tv_nsec = 20'000'000};

constexpr std::size_t kMostProcessGroups = 4096;

// In memory that the guardian and the agent share: the one that sweeps is not the one that started
// the workers.
struct Groups {
  std::atomic<std::size_t> count = 0;  // of all that were remembered
  std::atomic<int> session = 0;        // of the workers
  std::array<std::atomic<int>, kMostProcessGroups> numbers{};
};
Groups* groups = nullptr;

void kill_known_groups() {
  if (groups == nullptr) return;
  const std::size_t count = std::min(groups->count.load(), kMostProcessGroups);
  for (std::size_t i = 0; i < count; ++i)
    signal_known_group(groups->numbers[i], groups->session, SIGKILL);
}

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

void share_groups() {
  if (groups != nullptr) return;
  void* const memory =
      mmap(nullptr, sizeof(Groups), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) groups = new (memory) Groups;
}

void remember_group(int group) {
  if (groups == nullptr) return;
  groups->session = getsid(0);
  groups->numbers[groups->count % kMostProcessGroups] = group;
  ++groups->count;
}

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
    left.was_blind = !found.is_whole();
    if (left.was_blind) kill_known_groups();
    for (const ProcessStat& process : found.all()) {
      send_signal(process, SIGKILL);
      if (left.count < left.pids.size()) left.pids[left.count++] = process.pid;
    }
    const bool only_foreign = found.is_whole() && found.all().empty() && !except.empty();
    if (only_foreign || std::chrono::steady_clock::now() >= give_up_at) return left;
    sigtimedwait(&child_ended, nullptr, &kLookAgain);
  }
  return {};
}

}  // namespace drun::agent
