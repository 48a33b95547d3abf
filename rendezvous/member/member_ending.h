// core. How a job ends for a member that has to say so itself: nobody else can tell it.
// Thread: any.
#pragma once

#include <string_view>

#include "rendezvous/member/member.h"

namespace drun::rendezvous {

// The outcome from what this node knows.
Outcome local_outcome(const MemberState& state, Ending ending, Time now);

// Where a coordinator is sought: all endpoints, if there are several.
std::string place_text(const MemberState& state);

// "waiting for the coordinator at 10.0.0.1:29400: it has not answered yet"
std::string waiting_for_text(const MemberState& state);

// This node's number; absent: it had none yet, in an elastic world.
std::optional<int> own_rank(const MemberState& state);

// The coordinator went away (or must be taken for gone).
Ending lost_ending(const MemberState& state, std::string_view reason);

// Timeout: naming who is missing, or why the coordinator cannot be reached.
Error join_timeout_error(const MemberState& state);

// Refused: what answers is not a drun of this version.
Error wrong_peer_error(const MemberState& state, std::string_view reason);

}  // namespace drun::rendezvous
