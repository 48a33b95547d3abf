#include "agent/process/descendants.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <ctime>
#include <new>

#include "agent/spawn/raw_syscall.h"
#include "rendezvous/base/unique_fd.h"

namespace drun::agent {
namespace {

// The kernel's limit on 64-bit machines (PID_MAX_LIMIT): 16 MiB of addresses. Only the pages of
// existing pids take memory.
constexpr std::size_t kPidLimit = 4 * 1024 * 1024;
constexpr std::size_t kFoundLimit =
    256 * 1024;  // processes below us; more are found by a next look

template <typename T>
T* map_zeroed(std::size_t count) {
  void* memory = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<T*>(memory);
}

using Parse = bool (*)(std::string_view text, ProcessStat& stat);

// `name` is relative to `directory`: "123/stat".
bool read_process(int directory, const char* name, Parse parse, ProcessStat& stat) {
  const UniqueFd file(openat(directory, name, O_RDONLY | O_CLOEXEC));
  if (!file) return false;
  std::array<char, 512> text;
  const ssize_t size = read(file.get(), text.data(), text.size());
  return size > 0 && parse({text.data(), static_cast<std::size_t>(size)}, stat);
}

bool read_stat_of(int pid, ProcessStat& stat) {
  std::array<char, 32> name{"/proc/"};
  char* end = std::to_chars(name.data() + 6, name.data() + 20, pid).ptr;
  std::copy_n("/stat", 6, end);
  return read_process(AT_FDCWD, name.data(), parse_stat, stat);
}

// Calls `visit` with every process that /proc shows: its pid, state and parent. Reads status, not
// stat: while a process closes descriptors in execve(2), which waits for their file systems, every
// reader of its stat waits too, uninterruptibly.
template <typename Visit>
void for_each_process(const Visit& visit) {
  const UniqueFd proc(open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  alignas(DirectoryEntry) std::array<char, 32 * 1024> buffer;
  for_each_name(proc.get(), buffer, [&](std::string_view name) {
    if (name.front() < '1' || name.front() > '9' || name.size() > 10) return true;
    std::array<char, 32> path{};
    std::copy_n("/status", 7, std::copy(name.begin(), name.end(), path.begin()));
    ProcessStat stat;
    if (read_process(proc.get(), path.data(), parse_status, stat)) visit(stat);
    return true;
  });
}

// Not where /proc is covered, or shows the processes of another pid namespace.
bool is_proc_ours(int self) {
  std::array<char, 16> text;
  const ssize_t size = readlink("/proc/self", text.data(), text.size());
  int shown = 0;
  if (size <= 0 || std::from_chars(text.data(), text.data() + size, shown).ec != std::errc())
    return false;
  return shown == self;
}

// parents[pid]: the parent's pid; 0: there is no such process. A line of parents ends at pid 1 or
// at a process that has ended meanwhile. The number of steps is limited in case reused pids form a
// circle.
bool is_below(const int* parents, int pid, int top, std::span<const int> except) {
  for (int steps = 0; pid > 0 && steps < 100'000; ++steps) {
    if (std::find(except.begin(), except.end(), pid) != except.end()) return false;
    pid = parents[pid];
    if (pid == top) return true;
  }
  return false;
}

}  // namespace

bool become_subreaper() { return prctl(PR_SET_CHILD_SUBREAPER, 1) == 0; }

bool has_children() {
  siginfo_t info{};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

Descendants::Descendants(std::span<const int> except)
    : found_(map_zeroed<ProcessStat>(kFoundLimit)) {
  int* parents = map_zeroed<int>(kPidLimit);
  std::size_t seen = 0;
  const int self = getpid();
  is_whole_ = found_ != nullptr && parents != nullptr && is_proc_ours(self);
  if (is_whole_) {
    // All are kept at first, then those below us moved to the front.
    for_each_process([&](const ProcessStat& stat) {
      const auto index = static_cast<std::size_t>(stat.pid);
      const auto parent = static_cast<std::size_t>(stat.parent);
      if (index >= kPidLimit || parent >= kPidLimit || seen >= kFoundLimit) return;
      parents[index] = stat.parent;
      found_[seen++] = stat;
    });
    for (std::size_t i = 0; i < seen; ++i) {
      if (!is_below(parents, found_[i].pid, self, except)) continue;
      // Its number may have been reused since.
      ProcessStat stat;
      if (!read_stat_of(found_[i].pid, stat)) continue;
      parents[stat.pid] = stat.parent;
      if (is_below(parents, stat.pid, self, except)) found_[count_++] = stat;
    }
    if (count_ == 0 && except.empty()) is_whole_ = !has_children();
  }
  if (parents != nullptr) munmap(parents, kPidLimit * sizeof(int));
}

Descendants::~Descendants() {
  if (found_ != nullptr) munmap(found_, kFoundLimit * sizeof(ProcessStat));
}

std::span<const ProcessStat> Descendants::all() const& { return {found_, count_}; }

bool send_signal(const ProcessStat& process, int signal) {
  const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
  ProcessStat again;
  // The descriptor is pinned to one process, which may have got the number since the snapshot.
  if (!pidfd || !read_stat_of(process.pid, again)) return false;
  if (again.started_ticks != process.started_ticks) return false;
  return syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0) == 0;
}

bool signal_known_group(int group, int session, int signal) {
  siginfo_t info{};
  const bool is_child =
      waitid(P_PID, static_cast<id_t>(group), &info, WEXITED | WNOHANG | WNOWAIT) == 0;
  // While its leader is gone but members are left, the number cannot be another's: ESRCH.
  const pid_t leaders_session = getsid(group);
  const bool is_of_session = leaders_session == session || (leaders_session < 0 && errno == ESRCH);
  return (is_child || is_of_session) && kill(-group, signal) == 0;
}

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
