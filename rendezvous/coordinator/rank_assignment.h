// core. From the nodes of a round to its world: ranks, each node's view, and who is still missing.
// Thread: any.
#pragma once

#include "rendezvous/coordinator/round.h"

namespace drun::rendezvous {

// Base ranks of all nodes, by node rank; role ranks likewise, per role. Requires that all joined.
void assign_ranks(RoundState& state);

// The world as sent to `node`. Requires assigned ranks.
World world_of(const RoundState& state, int node);

// Lists cut to the first few: O(nodes), so not for every hello.
Waiting roll(const RoundState& state, Time now);

// The time of the world's nodes until now, from what each has reported. `is_over`: the job ends now.
JobTimes times_of(const RoundState& state, Time now, bool is_over);

// The outcome, as sent to every node. `failures` of the state are in it if workers failed.
Outcome outcome_of(const RoundState& state, Ending ending, Time now);

}  // namespace drun::rendezvous
