// edge. The processes below this process: a snapshot of them, from /proc, and killing them all.
//
// A process can leave its group and its session, but not its line of parents: this process is a
// child subreaper, so a process that loses its parent becomes a child of it (prctl(2)). All threads
// of a process share a parent, so one status file per process is sufficient.
//
// Safety:  usable in a signal handler and after heap corruption: memory comes from mmap only.
// Cost:    about 7 us per process on the machine.
// Waits:   never for a process that is not below this one. One below it can be stuck in execve(2),
//          because it closes a file on a file system that hangs: its stat waits as long.
// Errors:  is_whole() is false, and all() is empty, if /proc is hidden or another namespace's, if
// it
//          hides all our children (hidepid in proc(5)), or if there is no memory.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <span>

#include "agent/process/proc.h"

namespace drun::agent {

// Makes this process adopt orphans. False if the kernel does not support it (before Linux 3.4).
bool become_subreaper();

// Whether this process has children, including zombies.
bool has_children();

class Descendants {
 public:
  // Takes the snapshot. Excludes the children in `except` and the processes below them.
  explicit Descendants(std::span<const int> except = {});
  Descendants(const Descendants&) = delete;
  Descendants& operator=(const Descendants&) = delete;
  ~Descendants();

  // False if there may be descendants that are not in all().
  bool is_whole() const { return is_whole_; }
  std::span<const ProcessStat> all() const&;
  std::span<const ProcessStat> all() const&& = delete;  // `for (... : Descendants().all())` dangles

 private:
  ProcessStat* found_;
  std::size_t count_ = 0;
  bool is_whole_ = false;
};

// Sends a signal to the process group of a worker, without reading /proc. Does nothing if the
// number now belongs to a process outside `session` that is not our child. True if a process got
// it; signal 0 only checks for one (kill(2)).
bool signal_known_group(int group, int session, int signal);

// Sends a signal if the pid still belongs to the process of the snapshot.
bool send_signal(const ProcessStat& process, int signal);

// --- Sweep: kills and reaps all processes below this process, as the last resort
//
// If /proc cannot be read, it kills the workers' process groups, which share_groups stores;
// processes that have left these groups are then not found. It reaps all children, because the
// caller (the guardian) ends next. Never throws.

// Sufficient for the kernel to free the memory of large processes.
constexpr std::chrono::seconds kSweepLimit{5};

struct SweepResult {
  // Processes that did not die within the limit because they are stuck in the kernel.
  std::array<int, 16> pids{};
  std::size_t count = 0;  // at most pids.size()
  // Only process groups could be killed; other processes may be left.
  bool was_blind = false;
};

// Allocates shared memory for the groups of this process and its forks. Call before the first fork.
// If there is no memory, remember_group has no effect.
void share_groups();
// Stores a worker's process group. Only the last 4,096 are kept.
void remember_group(int group);

// `except`: children that are spared, with all processes below them.
SweepResult sweep(std::span<const int> except, std::chrono::milliseconds limit);

}  // namespace drun::agent
