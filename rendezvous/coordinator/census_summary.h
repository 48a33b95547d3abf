// core. Makes the content of `drun status` from the round's state and the nodes' answers.
#pragma once

#include "rendezvous/coordinator/round.h"
#include "rendezvous/job/census.h"

namespace drun::rendezvous {

// O(1), except for copying the failure and the excluded nodes.
JobFacts facts_of(const RoundState& state, Time now);

// From the answers to `query` that have arrived. O(nodes).
Census census_of(const RoundState& state, const OpenQuery& query, Time now);

}  // namespace drun::rendezvous
