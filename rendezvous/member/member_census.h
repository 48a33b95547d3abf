// core. What a member hears from its agent, and asks of it, about how nodes are (`drun status`).
// Part of the member's machine (member.h). Owner:   values; copy freely.   Thread: any.
#pragma once

#include <cstdint>

#include "rendezvous/census.h"

namespace drun::rendezvous {

// Events.
// Somebody on this node wants to know how the job is: CensusHeard comes back, unless the
// coordinator is lost meanwhile.
struct OwnCensusQuestion {
  std::uint64_t question = 0;
};
// The answer to SummariseNode.
struct OwnSummary {
  std::uint64_t census = 0;
  NodeSummary summary;
};

// Actions.
struct SummariseNode {
  std::uint64_t census = 0;
};
struct CensusHeard {
  std::uint64_t question = 0;
  Census census;  // with a note alone: there is nobody to ask
};

}  // namespace drun::rendezvous
