// core. What a coordinator that takes over learns from its members about the rounds before it.
//
// Shape:   the largest wins: numbers of rounds are never used twice, restarts stay used up.
// World:   the first one begins at once when as many have come as the last had, but for its lost
//          coordinator; else after the last call, or the heartbeat timeout if that is shorter.
// Thread:  any.
#pragma once

#include "rendezvous/past.h"
#include "rendezvous/round/round.h"

namespace drun::rendezvous {

void inherit(RoundState& state, const Past& past, Time now);

// Whether all are in line who can be expected after a take-over.
bool has_survivors(const RoundState& state);

// How long the first world waits for more nodes than the least.
Time::duration last_call_of(const RoundState& state);

}  // namespace drun::rendezvous
