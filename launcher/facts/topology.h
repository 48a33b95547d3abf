// core. The machine as seen by placement: a table of CPUs, and the NUMA nodes of the GPUs.
//
// `cpus` has the machine's order, so that neighbors share cores, caches and packages. Core, cache
// and package numbers can only be compared for equality. CPU and memory node numbers are the
// kernel's.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace drun {

struct Cpu {  // in the kernel's sense: one hardware thread
  int cpu = 0;
  int core = 0;
  int cache = 0;  // last-level cache
  int package = 0;
  int memory_node = 0;     // nearest
  bool is_allowed = true;  // for this process, by its affinity and cpuset
  bool operator==(const Cpu&) const = default;
};

struct Gpu {
  std::string pci_address{};         // "0000:3b:00.0"; empty: unknown
  std::string uuid{};                // "GPU-..."; empty: unknown
  std::optional<int> memory_node{};  // absent: unknown to the kernel
  bool operator==(const Gpu&) const = default;
};

struct Topology {
  std::vector<Cpu> cpus{};
  std::vector<int> memory_nodes{};  // from which this process may allocate; ascending
  std::vector<Gpu> gpus{};          // in CUDA's order with none hidden
  bool operator==(const Topology&) const = default;
};

}  // namespace drun
