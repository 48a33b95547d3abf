// core. Where one worker runs: which CPUs and memory nodes it may use, which devices it sees, how
// many threads it is told to take. Decided by the launcher's plan, obeyed by agent/spawn.
//
// Units:   CPUs and memory nodes by the kernel's numbers (/sys/devices/system/{cpu,node}).
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace drun {

enum class MemoryPolicy {
  None,    // as drun's own
  Prefer,  // from these nodes while they have any, then from others
  Strict,  // from these nodes alone; the kernel kills who needs more
};

struct WorkerPlacement {
  std::vector<int> cpus{};          // ascending; empty: not bound
  int cores = 0;                    // physical cores that those are
  std::vector<int> memory_nodes{};  // ascending; empty: memory is not bound
  MemoryPolicy memory = MemoryPolicy::None;
  std::optional<int> omp_threads{};    // OMP_NUM_THREADS; absent: inherited
  std::vector<std::string> devices{};  // its part of the visible devices; empty: all of them
  bool operator==(const WorkerPlacement&) const = default;
};

// {0, 1, 2, 5} -> "0-2,5", as the kernel writes such lists. Requires ascending numbers.
std::string ranges_text(const std::vector<int>& numbers);

// "none", "prefer", "strict".
const char* to_string(MemoryPolicy policy);

}  // namespace drun
