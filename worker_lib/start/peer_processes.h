// edge. The processes of the ranks on this node, watched with pidfds: the kernel reports their
// ends, independent of connections.
//
// Limits:  a process is watched if it is visible from here: same pid namespace, Linux 5.3 or later.
// Thread:  any, once constructed.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "rendezvous/base/unique_fd.h"

namespace drun::worker {

// Identifies a process, even if its pid is reused later. All zero: unknown.
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
  // `processes`: by rank of the world; unknown for ranks that are not watched.
  explicit PeerProcesses(const std::vector<ProcessName>& processes);

  // A descriptor that becomes readable when that rank's process ends; -1: not watched. Owned by
  // this.
  int fd(int world_rank) const;
  // The first of these ranks that has ended; waits for one for up to `time`.
  std::optional<int> ended(const std::vector<int>& world_ranks,
                           std::chrono::milliseconds time) const;

 private:
  std::vector<UniqueFd> fds_;
};

}  // namespace drun::worker
