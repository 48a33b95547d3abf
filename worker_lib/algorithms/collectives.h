// core. Every collective, over messages between two ranks.
//
// Small data goes the way with the fewest rounds (trees, Bruck's all_gather), large data in
// pipelines.h.
//
// Memory:  as in Call; the input is not written to, nor is the output of a rank that has none.
// Result:  the same bits on all ranks of an all_reduce; the same order of reduction for the same
//          count, type and number of ranks.
// Thread:  of the Exchange.
// Errors:  the Exchange's; outputs are unspecified then.
#pragma once

#include "drun/backend.h"
#include "worker_lib/algorithms/exchange.h"

namespace drun::worker {

void run_collective(Exchange& mesh, const Call& call);

}  // namespace drun::worker
