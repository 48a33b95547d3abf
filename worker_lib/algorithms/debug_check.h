// core. Compares the calls of all ranks before data moves, with DRUN_DEBUG=1, and describes calls
// and messages that differ.
//
// Rounds:  log2(size) if they are equal; no rank leaves before all have called.
// Errors:  Mismatch on every rank, with the ranks and their calls, or the counts that differ; and
//          those of the Exchange.
#pragma once

#include <cstdint>
#include <vector>

#include "drun/backend.h"
#include "worker_lib/algorithms/exchange.h"
#include "worker_lib/base/signature.h"

namespace drun::worker {

// Use a separate Exchange, because ranks with different calls must be matched in it.
void agree(Exchange& mesh, const Call& call, std::uint32_t sequence);

// The failure of a collective for which the ranks have these calls, in rank order.
BackendFailure disagreement(std::uint32_t sequence, const std::vector<Signature>& by_rank);
// The failure of a message of which the two ranks have different types or counts.
BackendFailure message_mismatch(int from, const Signature& sent, const Signature& expected);

// Compares the counts of operations for which only some ranks know them. Call after agree().
void compare_counts(Exchange& mesh, const Call& call, std::uint32_t sequence);

}  // namespace drun::worker
