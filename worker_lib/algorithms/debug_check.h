// core. Before data moves, with DRUN_DEBUG=1: do all ranks call the same?
//
// Rounds:  log2(size), if they do; none leaves before all have called.
// Errors:  Mismatch on every rank, saying who calls what, or whose counts do not fit whose; and the
//          Exchange's.
#pragma once

#include <cstdint>

#include "drun/backend.h"
#include "worker_lib/algorithms/exchange.h"

namespace drun::worker {

// The Exchange is for this alone: ranks that call different things must meet in it.
void agree(Exchange& mesh, const Call& call, std::uint32_t sequence);

// Of operations with counts that only some ranks know; of others nothing. After agree.
void compare_counts(Exchange& mesh, const Call& call, std::uint32_t sequence);

}  // namespace drun::worker
