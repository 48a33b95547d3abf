// core. Who gets which CPUs and memory nodes: topology, workers and wish in, places out.
//
// Owner:   values; copy freely.   Thread: any.
// Errors:  Usage, "reason; remedy" without the option's name. Never throws.
// Source:  torch.numa.binding for what --numa-binding means; mpirun for --bind-to. Both, and what
//          is different here, are told in docs/reference/placement.md.
#pragma once

#include <vector>

#include "agent/spec.h"
#include "launcher/facts/topology.h"
#include "rendezvous/base/result.h"

namespace drun {

enum class BindTo {
  None,
  Core,            // one core each, evenly spread
  Socket,          // the package of that core
  Numa,            // the memory node of that core
  GpuNode,         // the memory nodes of the worker's GPUs
  GpuSocket,       // the packages of those
  GpuExclusive,    // a share of those nodes' cores that no other GPU's worker has
  GpuCoreComplex,  // the cores below one last-level cache of that node
};

struct PlacementWish {
  BindTo bind_to = BindTo::None;
  MemoryPolicy memory = MemoryPolicy::Prefer;
  int workers = 1;
  // By worker, dealt out in this order; who has none is not bound to any. Empty: one each.
  std::vector<int> gpus_of{};
  std::vector<Gpu> gpus{};  // visible ones
};

// One a worker, in local-rank order; with BindTo::None they are empty.
Result<std::vector<WorkerPlacement>> place_workers(const Topology& topology,
                                                   const PlacementWish& wish);

// How many threads each worker shall take: a core shared by n workers counts as 1/n, rounded down,
// at least 1; a worker that is not bound shares all allowed cores. `usable_cpus` (a CPU quota may
// be less than the cores) is shared evenly.
std::vector<int> fair_threads(const Topology& topology, const std::vector<WorkerPlacement>& places,
                              int usable_cpus);

}  // namespace drun
