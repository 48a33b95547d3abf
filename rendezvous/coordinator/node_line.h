// core. The line: nodes that have joined and are not in the running world; and the choice of the
// nodes and node ranks of the next world.
//
// Identity: a node with a pinned rank is identified by it, another agent by address, host and slot.
//           If it reconnects, or a new process takes its slot, it replaces its earlier entry.
// Choice:   the coordinator's node, then nodes of the previous world, then the nodes that have
//           waited longest, up to the maximum. No world starts without the coordinator's node or
//           with fewer nodes than the minimum.
// Ranks:    a pinned node gets its own. Otherwise nodes that stay keep their rank if the new world
//           has it. The other ranks go first to returning nodes that had them, then to nodes that
//           stay but whose rank is gone, and then to new nodes, in `RankOrder`. (torch elastic
//           sorts the names as plain text (node10 before node2), anew in every round.)
// Uptime:   a lost node is readmitted only after it has been connected for min_uptime, doubled with
//           each loss up to 64 * min_uptime. A running world is not stopped for a node that has
//           been connected for less.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/coordinator/round_state.h"

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

// The node rank that it is pinned to, or had in the last world.
std::optional<int> rank_of(const RoundState& state, const JoinedNode& node);
// The node in the world or in line that has the pinned rank, or null. Includes lost nodes.
const JoinedNode* holder_of(const RoundState& state, int node_rank);

// Records that a node of the world was lost, or left; a loss counts against its readmission.
void note_loss(RoundState& state, const RoundNode& node, Time now);
void note_leaving(RoundState& state, const RoundNode& node);

// The nodes of a world that starts now. If there are fewer than the minimum, it cannot start.
std::vector<Peer> next_nodes(const RoundState& state, Time now);

// Whether to stop the running world because a waiting node can join.
bool has_joiner(const RoundState& state, Time now);

// The number of nodes that could form a world without `node`.
int nodes_without(const RoundState& state, int node, Time now);

// take_seats forms the world from nodes of the line and assigns their node ranks; leave_seats
// returns the connected nodes of the world to the line.
void take_seats(RoundState& state, const std::vector<Peer>& peers);
void leave_seats(RoundState& state);

// Join progress, as sent to waiting nodes: the nodes that have joined and those that are missing;
// only the first few are listed. O(nodes), so do not call it for every hello.
Waiting roll(const RoundState& state, Time now);
// The same, for nodes that the running world left out.
Waiting roll_for_spares(const RoundState& state);
// The first pinned ranks without a node, before the world begins.
std::vector<int> missing_ranks(const RoundState& state, std::size_t most);

// --- The assignment of node ranks

struct Applicant {
  std::string host;
  int slot = 0;                    // distinguishes agents of one host
  std::uint64_t arrival = 0;       // increases with each arrival
  bool is_coordinator = false;     // its agent is the coordinator
  bool stays = false;              // it was in the previous world, with `last_rank`
  std::optional<int> last_rank{};  // or the rank that it is pinned to
};

// order[n] is the index of the applicant that becomes node n. Contains all applicants.
std::vector<std::size_t> number_nodes(std::span<const Applicant> applicants, RankOrder order);

}  // namespace drun::rendezvous
