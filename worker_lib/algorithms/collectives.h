// core. All collectives, built on messages between two ranks.
//
// Small data takes the path with the fewest rounds (trees, Bruck's all_gather). Large data uses
// pipelines.h.
//
// Memory:  as in Call. The input is not modified. On ranks without an output, only the input is
//          accessed.
// Result:  all_reduce gives identical bits on all ranks. The order of reduction depends only on the
//          count, the type and the number of ranks.
// Thread:  as for the Exchange.
// Errors:  those of the Exchange; outputs are then unspecified.
#pragma once

#include "drun/backend.h"
#include "worker_lib/algorithms/exchange.h"

namespace drun::worker {

void run_collective(Exchange& mesh, const Call& call);

}  // namespace drun::worker
