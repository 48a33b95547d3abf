// edge. The machine as seen by placement: a table of CPUs, and the NUMA nodes of the GPUs. hwloc
// reads it; no other file includes hwloc.
//
// `cpus` has the machine's order, so that neighbors share cores, caches and packages. Core, cache
// and package numbers can only be compared for equality. CPU and memory node numbers are the
// kernel's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/result.h"

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

// --- Reading the machine
//
// Takes milliseconds, so it is used only if workers are placed. Errors: System if hwloc is missing
// or cannot read the machine; Usage for an invalid synthetic description.

// The CPUs and memory nodes of this machine and which of them this process may use. Without GPUs.
Result<Topology> read_topology();

// A synthetic machine, for example hwloc's "pack:2 numa:1 l3:1 core:8 pu:2". All of it is allowed.
Result<Topology> read_synthetic_topology(const std::string& description);

// Makes hwloc's functions available. Does nothing where hwloc is linked; in drun, hwloc_late.cc
// replaces it by a function that loads the library. Call it from one thread at a time. Errors:
// System, if the library cannot be loaded.
Result<void> load_hwloc();

}  // namespace drun
