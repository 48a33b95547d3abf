// core. What a coordinator that takes over learns about the rounds before it, from its members and
// from who coordinated them.
//
// Shape:   the largest wins: numbers of rounds are never used twice, restarts stay used up. Who was
//          left out stays left out, who was lost has been lost as often.
// Failure: each member reports its first failure in the last world with its age. The earliest one
//          is the last failure of the job (`drun status`), until a round of this coordinator fails.
// World:   the first one begins at once when as many have come as the last had, but for its lost
//          coordinator, unless that is this one, which leads again; else after the last call, or
//          the heartbeat timeout if that is shorter.
// Thread:  any.
#pragma once

#include "rendezvous/coordinator/round.h"
#include "rendezvous/job/job_record.h"

namespace drun::rendezvous {

// Gives the agents that were not known to be left out.
std::vector<AgentId> inherit(RoundState& state, const Past& past, Time now);

// From the coordinator before. When restarts were is told by members; until then they count as new.
void inherit(RoundState& state, const RoundRecord& record, Time now);

// For the coordinator after this one, before the next round begins: its number is used up.
RoundRecord record_of(const RoundState& state);

// What is known of an agent, to be told on.
NodeRecord record_of(const RoundState& state, const AgentId& id);

// Whether all are in line who can be expected after a take-over.
bool has_survivors(const RoundState& state);

// How long the first world waits for more nodes than the least.
Time::duration last_call_of(const RoundState& state);

}  // namespace drun::rendezvous
