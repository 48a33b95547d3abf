// core. Placements in words and as JSON, the same in the plan and in the report.
//
// JSON:    one object a worker of this node, in local-rank order; fields are only ever added:
//            local_rank
//            cpus          "0-3,8", the kernel's numbers; null: not bound
//            cores         physical cores that those are; null: not bound
//            memory        "prefer", "strict" or "none"
//            memory_nodes  "0"; null: memory is not placed
//            omp_threads   number; null: inherited
//            devices       [entries of the device variable]; null: all visible ones
// Thread:  any.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "agent/spec.h"

namespace drun {

// "not bound", or "CPUs 0-3 (4 cores), memory of NUMA node 0 preferred, devices 0,1, 4 threads".
std::string placement_text(const WorkerPlacement& placement);

// Null when nothing is placed.
nlohmann::ordered_json placement_json(const std::vector<WorkerPlacement>& placements);

}  // namespace drun
