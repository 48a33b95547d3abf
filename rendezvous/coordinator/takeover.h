// core. The state that a new coordinator takes over, from its members and from the former
// coordinator.
//
// State:   the highest reported number counts, so that round numbers are never used twice and
//          restarts stay used up. Excluded nodes stay excluded, and losses stay counted.
// Failure: each member reports its first failure in the last world with its age. The earliest one
//          is the last failure of the job (`drun status`), until a round of this coordinator fails.
// World:   the first one begins immediately once as many nodes have joined as the last world had,
//          not counting its coordinator (unless this agent was that coordinator and leads again).
//          Otherwise it begins after the last call, or after the heartbeat timeout if that is
//          shorter.
#pragma once

#include "rendezvous/coordinator/round.h"
#include "rendezvous/job/job_record.h"

namespace drun::rendezvous {

// Returns the agents that are now known to be excluded and were not before.
std::vector<AgentId> inherit(RoundState& state, const Past& past, Time now);

// From the former coordinator's record. Members report the times of the restarts; until then, the
// restarts count as recent.
void inherit(RoundState& state, const RoundRecord& record, Time now);

// For the next coordinator. Includes the number of the round that is about to begin.
RoundRecord record_of(const RoundState& state);

// The record of an agent, for the members.
NodeRecord record_of(const RoundState& state, const AgentId& id);

// Whether all nodes that can be expected after a takeover are in line.
bool has_survivors(const RoundState& state);

// How long the first world waits for more nodes than the minimum.
Time::duration last_call_of(const RoundState& state);

}  // namespace drun::rendezvous
