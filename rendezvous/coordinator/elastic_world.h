// core. The line of an elastic world: who has been accepted and does not run, who of them forms the
// next world, and in which seats.
//
// Members: known by address, host and slot. An agent that comes back, on a new connection or as
//          another process, takes its own place; it is never two.
// Choice:  those that stay, then those longest in line, the coordinator's node always, up to the
//          most nodes; no world without it or with fewer than the least.
// Uptime:  who was lost is not let in again before it has been there for min_uptime, doubled each
//          time it is lost (64 times at most); a running world is not stopped for anybody sooner.
// Thread:  any.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/coordinator/round.h"

namespace drun::rendezvous {

// `address`: of its connection, with a port. Names alone do not do: many a cluster has a hundred
// nodes called localhost.
AgentId agent_id(const Hello& hello, std::string_view address);

// Newcomers beyond this are refused: bounds the line's memory.
std::size_t most_in_line(const RoundState& state);

// At the end of the line, with the connection's first words. Whoever of the same agent stood in
// line is replaced; its connection is returned, to be dropped. That of one in a seat is, too.
std::optional<Peer> stand_in_line(RoundState& state, Peer peer, const Hello& hello,
                                  const AgentId& id, Time now);
void leave_line(RoundState& state, Peer peer);

// A seated node was lost, or left: what that means for its next time.
void note_loss(RoundState& state, const RoundNode& node, Time now);
void note_leaving(RoundState& state, const RoundNode& node);

// The nodes of a world that could begin now; fewer than the least, or none: it cannot.
std::vector<Peer> next_nodes(const RoundState& state, Time now);

// Whether a running world is to be stopped because somebody can join it.
bool has_joiner(const RoundState& state, Time now);

// How many nodes would be left to form a world without `node`.
int nodes_without(const RoundState& state, int node, Time now);

// From the line into numbered seats, and all that still hold one back into line.
void take_seats(RoundState& state, const std::vector<Peer>& peers);
void leave_seats(RoundState& state);

// Who has joined, for those who wait; `is_spare`: for those a world runs without.
Waiting elastic_roll(const RoundState& state, bool is_spare, Time now);

}  // namespace drun::rendezvous
