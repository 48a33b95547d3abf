// edge. The processes of the ranks on this node, held by pidfds: the kernel reports their ends,
// whatever became of the connections to them.
//
// Limits:  a process is held where this one sees it: the same pid namespace, Linux 5.3 or later.
// Thread:  any, once made.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "rendezvous/base/unique_fd.h"

namespace drun::worker {

// A process, told apart from a later one with the same pid. All zero: unknown.
struct ProcessName {
  std::uint32_t pid = 0;
  std::uint64_t pid_namespace = 0;
  std::uint64_t started = 0;  // in clock ticks since the boot
  bool operator==(const ProcessName&) const = default;
};

ProcessName own_process();

class PeerProcesses {
 public:
  PeerProcesses() = default;
  // By rank of the world; unknown for ranks that are not to be held.
  explicit PeerProcesses(const std::vector<ProcessName>& processes);

  // Readable once that rank's process has ended; -1: it is not held. Valid as long as this.
  int fd(int world_rank) const;
  // The first of these that has ended; waits for one, at most `time`.
  std::optional<int> ended(const std::vector<int>& world_ranks,
                           std::chrono::milliseconds time) const;

 private:
  std::vector<UniqueFd> fds_;
};

}  // namespace drun::worker
