// core. The state of the coordinator's state machine (round.h), and values that follow from it.
//
// Nodes:   a node that has joined is in the line, or has a seat (a node rank) in the world. Before
//          each world all nodes are in the line (node_line.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rendezvous/coordinator/identity_contests.h"
#include "rendezvous/coordinator/node_queries.h"
#include "rendezvous/coordinator/round_events.h"
#include "rendezvous/job/job_record.h"
#include "rendezvous/protocol/control_message.h"
#include "rendezvous/ranks/failure_list.h"
#include "rendezvous/ranks/silent_ranks.h"
#include "rendezvous/ranks/slow_ranks.h"

namespace drun::rendezvous {

// --- Rules: the differences between fixed and elastic jobs

// A fixed job is an elastic job with as many nodes at least as at most, whose nodes are pinned to
// their ranks and cannot be replaced.
struct WorldRules : ElasticSpec {
  int max_nodes = 1;
  // Each node brings its node rank, which identifies it. Node 0 is the coordinator's. Otherwise
  // the coordinator assigns the ranks, and an agent is identified by host, address and slot.
  bool pins_ranks = false;
  // If a node is lost, leaves or cannot run another round, the job continues with other nodes in
  // another world. Otherwise it ends.
  bool replaces_nodes = true;
};
WorldRules rules_of(const RoundSpec& spec);

// `port`: the port that the coordinator listens on.
RoundSpec round_spec(const JoinSpec& spec, std::uint16_t port);

// --- State

// SteppedDown: another coordinator continues the job. The last phase, as Over.
enum class RoundPhase { Joining, Running, Stopping, Pausing, Ending, Over, SteppedDown };

// A node that is connected and was accepted.
struct JoinedNode {
  AgentId id{};
  Peer peer = 0;
  Hello hello{};
  Time heard{};
  Time since{};  // when its Hello arrived
  std::uint64_t arrival = 0;
  bool stays = false;                // in line: it was in the previous world
  std::optional<NodeTimes> times{};  // its last report
  Time times_at{};                   // when that arrived
};
// A node of the world.
struct RoundNode : JoinedNode {
  bool is_lost = false;  // or has left
  bool is_done = false;  // Running: all returned 0; Stopping: all stopped
  bool has_returned = false;
  std::string unusable{};  // Stopping: why it cannot run another round; empty: it can
  std::string slow{};      // --exclude-slow: why a standby node replaces it; empty: none does
  std::optional<int> leave_signal{};  // set: only this node leaves the job
  int base_rank = 0;
  std::vector<int> role_base_ranks{};  // of each of its roles
};

struct KnownAgent {
  std::optional<Peer> peer{};  // while it is connected
  std::optional<int> rank{};   // in the last world
  int losses = 0;
};

struct RoundState {
  RoundSpec spec;
  WorldRules rules;
  RoundPhase phase = RoundPhase::Joining;
  std::map<Peer, JoinedNode> line;
  int line_workers = 0;
  std::map<AgentId, KnownAgent> known;
  std::uint64_t arrivals = 0;
  std::vector<RoundNode> nodes;           // of the last world, by node rank; empty while Joining
  std::unordered_map<Peer, int> node_of;  // those of `nodes` that are connected
  int present_count = 0;                  // how many these are
  int pending_count = 0;  // of these, with is_done == false, while Running or Stopping
  int round = 0;          // worlds before the last one
  int next_round = 0;
  bool has_begun = false;  // this coordinator has started a world
  int world_size = 0;
  std::map<std::string, int> role_sizes;
  Time opened;                    // when Joining began
  std::optional<Time> last_call;  // Joining, with enough nodes: when the world begins
  std::optional<Time> first_world;
  Time round_began;
  int faults_told = 0;           // messages FaultInjected, of all rounds
  FailureList failures;          // of this round
  std::optional<Ending> ending;  // decided; absent while Stopping: by `failures`, or a restart
  // Stopping: the ending if the failure turns out not to end the job. A node may report progress,
  // which restores restarts, after another one was lost.
  std::optional<Ending> ending_otherwise;
  bool is_failure = false;     // Stopping: a failure stopped it, so the next round is a restart
  bool is_checked = false;     // no preflight is due (anymore)
  std::vector<Time> restarts;  // when
  std::size_t restarts_at_progress = 0;       // how many there were at the last progress
  bool made_progress = false;                 // this round
  std::optional<std::uint64_t> highest_step;  // that a progress file has shown, in any round
  FailureStreak streak;                       // start-up failures in a row, up to the last round's
  Time resume_at;                             // Pausing
  std::optional<JobDeadline> deadline;        // absent: none, or the workers have had its signal
  Time next_sweep;
  Time next_roll_call;
  Time end_by;
  NodeQueries queries;
  Suspects suspects;  // of this round, not judged yet
  // When the query about the suspects begins: nodes detect the same hang at different times.
  std::optional<Time> look_at;
  std::optional<std::uint64_t> begun_by_all;  // of the last hang verdict of this round
  SlowRanks slow_ranks;
  std::optional<Time> slow_replaced_at;   // --exclude-slow: when the last node was
  std::optional<Failure> last_failure;    // brief; of a round before
  std::optional<Time> inherited_failure;  // its time, if an earlier coordinator led that round
  std::optional<NodeLost> last_loss;      // why there may be too few nodes
  Exclusions exclusions;
  IdentityContests contests;
  // Another agent can take over as coordinator if this one leaves. Set before each event.
  bool has_successor = false;
  std::vector<NodeRecord> records;  // for the next coordinator, if there can be one
  std::vector<NodeRecord> untold;   // changed records that are not sent to members yet
  Time tell_from;                   // the earliest time to send them
  std::optional<int> survivors;     // expected after a takeover (takeover.h)
};

RoundState open_round(RoundSpec spec, Time now);

inline RoundNode& node_at(RoundState& state, int node) {
  return state.nodes[static_cast<std::size_t>(node)];
}
inline const RoundNode& node_at(const RoundState& state, int node) {
  return state.nodes[static_cast<std::size_t>(node)];
}
// "node 2 (host b)"
std::string name_of(const RoundState& state, int node);
// "a node" without a seat.
std::string name_of_peer(const RoundState& state, Peer peer);

// The job ends if this node is lost or cannot run another round.
bool loss_ends_job(const RoundState& state, int node);
NodeLost node_lost(const RoundState& state, int node, std::string reason);

// The nodes of the world that are connected.
std::vector<Peer> seated_peers(const RoundState& state);
// These, and those in the line.
std::vector<Peer> all_peers(const RoundState& state);
// The line by pinned node rank, else by connection.
std::vector<const JoinedNode*> line_in_order(const RoundState& state);
// The node of a connection, in the line or in the world; null: neither.
const JoinedNode* member_of(const RoundState& state, Peer peer);
// Whether any node is connected, in the line or in the world.
inline bool has_members(const RoundState& state) {
  return state.present_count > 0 || !state.line.empty();
}
// The coordinator's own agent, if it has joined.
const JoinedNode* host_of(const RoundState& state);

// The time between two Waiting messages.
inline constexpr std::chrono::seconds kRollCallInterval{10};
// How often silent members are looked for.
Time::duration sweep_interval(const RoundState& state);

// The restarts that use up the budget: with --max-restarts=N/progress those since the last
// progress. A coordinator that takes over the job counts all of them.
std::span<const Time> restarts_of_budget(const RoundState& state);

// The phase times of the nodes with a rank until now, from their reports. `is_over`: the job ends
// now.
JobTimes times_of(const RoundState& state, Time now, bool is_over);

// The outcome, as sent to every node. `failures` of the state are in it if workers failed.
Outcome outcome_of(const RoundState& state, Ending ending, Time now);

// --- One step of the state machine: the state, the time, and the actions so far.

struct RoundStep {
  RoundState& state;
  const Time now;
  std::vector<RoundAction> actions{};

  void send(Peer peer, CoordinatorMessage message) {
    actions.emplace_back(SendTo{peer, std::move(message)});
  }
  // To the nodes of the world; before it and at the end, also to those in the line.
  void send_all(CoordinatorMessage message) {
    const bool is_for_line =
        state.phase == RoundPhase::Joining || state.phase == RoundPhase::Ending;
    actions.emplace_back(
        SendAll{is_for_line ? all_peers(state) : seated_peers(state), std::move(message)});
  }
  void drop(Peer peer) {
    state.queries.lose(peer, name_of_peer(state, peer) + ": lost, it was disconnected");
    actions.emplace_back(Drop{peer});
  }
  void log(LogLevel level, std::string text) {
    actions.emplace_back(LogLine{level, std::move(text)});
  }
};

}  // namespace drun::rendezvous
