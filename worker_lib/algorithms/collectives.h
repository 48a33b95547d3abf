// core. All collectives, built on messages between two ranks.
//
// Small data takes the path with the fewest rounds (trees, Bruck's all_gather). Large data is
// divided into pieces that follow each other through all ranks.
//
// Memory:  as in Call. The input is not modified. On ranks without an output, only the input is
//          accessed.
// Result:  all_reduce gives identical bits on all ranks. The order of reduction depends only on the
//          count, the type and the number of ranks.
// Thread:  as for the Exchange.
// Errors:  those of the Exchange; outputs are then unspecified.
#pragma once

#include <cstdint>

#include "drun/backend.h"
#include "worker_lib/algorithms/exchange.h"

namespace drun::worker {

void run_collective(Exchange& mesh, const Call& call);
// The collective of a single rank, which has one part of `count` elements: at most a copy.
void run_alone(const Call& call);

// --- Comparison of the calls of all ranks before data moves, with DRUN_DEBUG=1: log2(size) rounds
// if they are equal. No rank leaves before all have called. Errors: Mismatch on every rank, with
// the ranks and their calls, or the counts that differ; and those of the Exchange.

// Use a separate Exchange, because ranks with different calls must be matched in it.
void agree(Exchange& mesh, const Call& call, std::uint32_t sequence);

// Compares the counts of operations for which only some ranks know them. Call after agree().
void compare_counts(Exchange& mesh, const Call& call, std::uint32_t sequence);

}  // namespace drun::worker
