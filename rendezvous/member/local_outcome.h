// core. The outcome of a job for a member that must determine it without a coordinator, and the
// texts about a coordinator that cannot be reached.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/member/member.h"

namespace drun::rendezvous {

// Begins MemberState::last_trouble if there is no connection.
constexpr std::string_view kNotReached = "cannot be reached yet: ";

// The outcome from what this node knows.
Outcome local_outcome(const MemberState& state, Ending ending, Time now);

// The endpoint of the coordinator, or all endpoints if there are several.
std::string place_text(const MemberState& state);

// "waiting for the coordinator at 10.0.0.1:29400: it has not answered yet"
std::string waiting_for_text(const MemberState& state);

// This node's rank; absent: not assigned yet, in an elastic job.
std::optional<int> own_rank(const MemberState& state);

// The ending when the coordinator is lost.
Ending lost_ending(const MemberState& state, std::string_view reason);

// Unreachable: every address that was tried, and why it failed.
Error reach_timeout_error(const MemberState& state);

// Timeout: names the missing nodes, or why the coordinator cannot be reached.
Error join_timeout_error(const MemberState& state);

// Refused: the peer is not a drun of this version.
Error wrong_peer_error(const MemberState& state, std::string_view reason);

}  // namespace drun::rendezvous
