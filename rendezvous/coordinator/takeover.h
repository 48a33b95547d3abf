// core. What a coordinator that takes over learns about earlier rounds, from its members and from
// the former coordinator.
//
// Shape:   the largest wins: numbers of rounds are never used twice, restarts stay used up. Nodes
//          that were excluded stay excluded, and losses stay counted.
// Failure: each member reports its first failure in the last world with its age. The earliest one
//          is the last failure of the job (`drun status`), until a round of this coordinator fails.
// World:   the first one begins immediately when as many have joined as the last one had, without
// its
//          lost coordinator, unless that is this one, which leads again; else after the last call,
//          or the heartbeat timeout if that is shorter.
// Thread:  any.
#pragma once

#include "rendezvous/coordinator/round.h"
#include "rendezvous/job/job_record.h"

namespace drun::rendezvous {

// Gives the agents that were not known to be left out.
std::vector<AgentId> inherit(RoundState& state, const Past& past, Time now);

// From the former coordinator. Members report the times of restarts; until then they count as new.
void inherit(RoundState& state, const RoundRecord& record, Time now);

// For the coordinator after this one, before the next round begins: its number is used up.
RoundRecord record_of(const RoundState& state);

// The record of an agent, to be passed on.
NodeRecord record_of(const RoundState& state, const AgentId& id);

// Whether all are in line who can be expected after a take-over.
bool has_survivors(const RoundState& state);

// How long the first world waits for more nodes than the least.
Time::duration last_call_of(const RoundState& state);

}  // namespace drun::rendezvous
