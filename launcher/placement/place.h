// core. Assigns CPUs and memory nodes to workers.
//
// Errors:  Usage, as "reason; remedy" without the option's name.
// See torch.numa.binding for --numa-binding and mpirun(1) for --bind-to;
// docs/reference/placement.md describes both, and the differences.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
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
  GpuSocket,       // the packages of those nodes
  GpuExclusive,    // a share of those nodes' cores that no other GPU's worker gets
  GpuCoreComplex,  // the cores of one last-level cache of that node
};

struct PlacementRequest {
  BindTo bind_to = BindTo::None;
  MemoryPolicy memory = MemoryPolicy::Prefer;
  int workers = 1;
  // Number of GPUs per worker, assigned in order; a worker without GPUs is not bound. Empty: one
  // each.
  std::vector<int> gpus_of{};
  std::vector<Gpu> gpus{};  // visible ones
};

// One entry per worker, in local-rank order. With BindTo::None the entries are empty.
Result<std::vector<WorkerPlacement>> place_workers(const Topology& topology,
                                                   const PlacementRequest& wish);

// Threads per worker. A core shared by n workers counts as 1/n; the sum is rounded down, but is at
// least 1. A worker that is not bound shares all allowed cores. `usable_cpus` is divided evenly and
// may be below the number of cores because of a CPU quota.
std::vector<int> fair_threads(const Topology& topology, const std::vector<WorkerPlacement>& places,
                              int usable_cpus);

// --- Placements as text and as JSON. The plan and the report use the same form.

// "not bound", or "CPUs 0-3 (4 cores), memory of NUMA node 0 preferred, devices 0,1, 4 threads".
std::string placement_text(const WorkerPlacement& placement);

// Null if no worker is placed. One object per worker of this node, in local-rank order;
// docs/reference/placement.md describes its fields.
nlohmann::ordered_json placement_json(const std::vector<WorkerPlacement>& placements);

}  // namespace drun
