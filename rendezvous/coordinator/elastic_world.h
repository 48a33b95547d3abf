// core. The line of an elastic job: agents that were accepted but are not in the running
// world, and the choice of the nodes and ranks of the next world.
//
// Identity: an agent is identified by address, host and slot. If it reconnects, or a new process
//           takes its slot, it replaces its earlier entry.
// Choice:   the coordinator's node, then nodes of the previous world, then the nodes that have
//           waited longest, up to the maximum. No world starts without the coordinator's node or
//           with fewer nodes than the minimum.
// Uptime:   a lost node is readmitted only after it has been connected for min_uptime, doubled with
//           each loss up to 64 * min_uptime. A running world is not stopped for a node that has
//           been connected for less.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/coordinator/round.h"

namespace drun::rendezvous {

// `address`: the connection's peer address, with its port. The host name alone is not unique: on
// some clusters every node is called localhost.
AgentId agent_id(const Hello& hello, std::string_view address);

// New agents beyond this limit are rejected, which bounds the memory of the line.
std::size_t most_in_line(const RoundState& state);

// Appends an agent that has sent its Hello. If the same agent already has a connection, in the line
// or in the running world, returns that connection for the caller to drop. An agent that was in the
// line keeps its position.
std::optional<Peer> stand_in_line(RoundState& state, Peer peer, const Hello& hello,
                                  const AgentId& id, Time now);
void leave_line(RoundState& state, Peer peer);

// Records that a node of the world was lost, or left; a loss counts against its readmission.
void note_loss(RoundState& state, const RoundNode& node, Time now);
void note_leaving(RoundState& state, const RoundNode& node);

// The nodes of a world that starts now. If there are fewer than the minimum, it cannot start.
std::vector<Peer> next_nodes(const RoundState& state, Time now);

// Whether to stop the running world because a waiting node can join.
bool has_joiner(const RoundState& state, Time now);

// The number of nodes that could form a world without `node`.
int nodes_without(const RoundState& state, int node, Time now);

// take_seats forms the world from nodes of the line and assigns their ranks; leave_seats returns
// the connected nodes of the world to the line.
void take_seats(RoundState& state, const std::vector<Peer>& peers);
void leave_seats(RoundState& state);

// Join progress, as sent to waiting nodes. `is_spare`: to nodes that the running world left out.
Waiting elastic_roll(const RoundState& state, bool is_spare, Time now);

}  // namespace drun::rendezvous
