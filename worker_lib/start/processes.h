// edge. What /proc tells about this process, its ancestors, and the processes of other ranks on
// this node, whose ends the kernel reports independent of connections (pidfds).
//
// Source:  proc(5), /proc/PID/stat.
// Thread:  any; of PeerProcesses, once constructed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "rendezvous/base/unique_fd.h"

namespace drun::worker {

// The process id of the nearest ancestor whose program has this name (its first 15 bytes: proc(5),
// comm). Absent if there is none, or /proc cannot be read.
std::optional<int> ancestor_named(std::string_view program);

// The number of threads of this process that still run code of the program; 1 if /proc cannot be
// read. A joined thread stays listed there for a moment, because the kernel wakes the joiner
// (CLONE_CHILD_CLEARTID) before it removes the thread. It has PF_EXITING by then, and is not
// counted.
std::size_t running_threads();

// Identifies a process, even if its pid is reused later. All zero: unknown.
struct ProcessName {
  std::uint32_t pid = 0;
  std::uint64_t pid_namespace = 0;
  std::uint64_t started = 0;  // in clock ticks since the boot
  bool operator==(const ProcessName&) const = default;
};

ProcessName own_process();

// A process is watched if it is visible from here: same pid namespace, Linux 5.3 or later.
class PeerProcesses {
 public:
  PeerProcesses() = default;
  // `processes`: by rank of the world; unknown for ranks that are not watched.
  explicit PeerProcesses(const std::vector<ProcessName>& processes);

  // A descriptor that becomes readable when that rank's process ends; -1: not watched. Owned by
  // this.
  int fd(int world_rank) const;

 private:
  std::vector<UniqueFd> fds_;
};

}  // namespace drun::worker
