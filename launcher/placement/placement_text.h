// core. Placements as text and as JSON. The plan and the report use the same form.
//
// JSON:    one object per worker of this node, in local-rank order; later versions only add fields:
//            local_rank
//            cpus          "0-3,8", kernel numbers; null: not bound
//            cores         number of physical cores of those CPUs; null: not bound
//            memory        "prefer", "strict" or "none"
//            memory_nodes  "0"; null: memory is not placed
//            omp_threads   number; null: inherited
//            devices       [entries of the device variable]; null: all visible devices
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "agent/spec.h"

namespace drun {

// "not bound", or "CPUs 0-3 (4 cores), memory of NUMA node 0 preferred, devices 0,1, 4 threads".
std::string placement_text(const WorkerPlacement& placement);

// Null if no worker is placed.
nlohmann::ordered_json placement_json(const std::vector<WorkerPlacement>& placements);

}  // namespace drun
