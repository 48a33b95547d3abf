// core. The machine as placement sees it: a plain table of CPUs, and where GPUs are attached.
//
// Shape:   `cpus` in the machine's own order, so that neighbours share cores, caches and packages.
//          Core, cache and package numbers mean nothing but "the same" or "another one".
// Units:   `cpu` and memory nodes by the kernel's numbers.
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace drun {

struct Cpu {  // what the kernel calls so: one hardware thread
  int cpu = 0;
  int core = 0;
  int cache = 0;  // the last-level one
  int package = 0;
  int memory_node = 0;     // the nearest
  bool is_allowed = true;  // to this process: its affinity, its cpuset
  bool operator==(const Cpu&) const = default;
};

struct Gpu {
  std::string pci_address{};         // "0000:3b:00.0"; empty: not known
  std::string uuid{};                // "GPU-..."; empty: not known
  std::optional<int> memory_node{};  // absent: the kernel does not say
  bool operator==(const Gpu&) const = default;
};

struct Topology {
  std::vector<Cpu> cpus{};
  std::vector<int> memory_nodes{};  // that this process may allocate from; ascending
  std::vector<Gpu> gpus{};          // as CUDA numbers them when nothing is hidden
  bool operator==(const Topology&) const = default;
};

// The GPUs that `names` stand for, entries of CUDA_VISIBLE_DEVICES: numbers, UUIDs or their
// beginnings, MIG-GPU-<uuid>/... A name that leads to none of `gpus` gives an empty Gpu, but when
// all GPUs are attached to one memory node: then that much is known of any.
std::vector<Gpu> gpus_named(const std::vector<std::string>& names, const std::vector<Gpu>& gpus);

}  // namespace drun
