// core. Values that follow from the nodes of a round: the ranks and each node's World, the roll of
// nodes that have joined and are missing, the phase times, and the outcome.
#pragma once

#include "rendezvous/coordinator/round.h"

namespace drun::rendezvous {

// Base ranks of all nodes, by node rank; role ranks likewise, per role. Requires that all joined.
void assign_ranks(RoundState& state);

// The world as sent to `node`. Requires assigned ranks.
World world_of(const RoundState& state, int node);

// The nodes that have joined and those that are missing; only the first few are listed. O(nodes),
// so do not call it for every hello.
Waiting roll(const RoundState& state, Time now);

// The world's nodes, for SlowRanks.
std::vector<SlowRanks::Node> speed_nodes(const RoundState& state);

// The phase times of the world's nodes until now, from their reports. `is_over`: the job ends now.
JobTimes times_of(const RoundState& state, Time now, bool is_over);

// The outcome, as sent to every node. `failures` of the state are in it if workers failed.
Outcome outcome_of(const RoundState& state, Ending ending, Time now);

}  // namespace drun::rendezvous
