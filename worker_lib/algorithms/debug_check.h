// core. Compares the calls of all ranks before data moves, with DRUN_DEBUG=1.
//
// Rounds:  log2(size) if they are equal; no rank leaves before all have called.
// Errors:  Mismatch on every rank, with the ranks and their calls, or the counts that differ; and
//          those of the Exchange.
#pragma once

#include <cstdint>

#include "drun/backend.h"
#include "worker_lib/algorithms/exchange.h"

namespace drun::worker {

// Use a separate Exchange, because ranks with different calls must be matched in it.
void agree(Exchange& mesh, const Call& call, std::uint32_t sequence);

// Compares the counts of operations for which only some ranks know them. Call after agree().
void compare_counts(Exchange& mesh, const Call& call, std::uint32_t sequence);

}  // namespace drun::worker
