// core. How nodes join the job and get lost: the rules of admission, contested identities
// (identity_contests.h), nodes that wait in the line (node_line.h), and lost nodes.
//
// All functions but the questions are parts of one step, and add their actions to it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/coordinator/round_state.h"

namespace drun::rendezvous {

// --- Questions

// Why `hello` cannot join, as the error that its sender gets (and the coordinator logs); nothing if
// it can, or if it is a joined member that reconnects while Joining.
std::optional<Error> objection(const RoundState& state, const Hello& hello);

// --- Joining

// A new connection has sent its Hello. It is refused, waits in the line, or waits until the holder
// of its identity has answered.
void admit(RoundStep& step, Newcomer newcomer);

// The holder of an identity is alive: refuses those that claim it.
void refuse_claimants(RoundStep& step, Peer holder, std::uint64_t check);
// The holder is gone: admits one of them.
void admit_claimants_of(RoundStep& step, Peer holder);
// The same for holders that have not answered in time.
void settle_contests(RoundStep& step);

// --- Nodes in the line

void receive_from_line(RoundStep& step, Peer peer, const MemberMessage& message);
// Its connection has ended.
void lose_from_line(RoundStep& step, Peer peer, const std::string& reason);

// --- Nodes of the world

// Its connection has ended.
void lose_node(RoundStep& step, int node, const std::string& reason);
// Disconnects it, for example because it broke the protocol.
void drop_node(RoundStep& step, int node, const std::string& reason);

// --- Members of either kind

inline constexpr const char* kBrokeProtocol = "it broke the control protocol";

void drop_member(RoundStep& step, Peer peer, const std::string& reason);

// Drops members that were silent for longer than the heartbeat timeout. Silence is checked in
// sweeps, so that a message costs O(1).
void sweep(RoundStep& step);

}  // namespace drun::rendezvous
