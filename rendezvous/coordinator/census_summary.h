// core. From the round's state and the nodes' answers to what `drun status` tells.
// Thread: any.
#pragma once

#include "rendezvous/coordinator/round.h"
#include "rendezvous/job/census.h"

namespace drun::rendezvous {

// O(1), but for the failure and what was left out.
JobFacts facts_of(const RoundState& state, Time now);

// From the answers received so far. O(nodes).
Census census_of(const RoundState& state, Time now);

// Of whom a census asks: every member that is there.
std::vector<Peer> census_peers(const RoundState& state);

}  // namespace drun::rendezvous
