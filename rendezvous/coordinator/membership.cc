#include "rendezvous/coordinator/membership.h"

#include <utility>

#include "rendezvous/base/text.h"
#include "rendezvous/coordinator/node_line.h"
#include "rendezvous/coordinator/round_lifecycle.h"
#include "rendezvous/coordinator/takeover.h"
#include "rendezvous/protocol/membership_text.h"

namespace drun::rendezvous {

// --- Questions

namespace {

// More than any real job has; keeps sums of ranks within int.
constexpr int kMostLocalWorkers = 1 << 20;
constexpr int kMostWorkers = 1 << 30;

Error refused(std::string reason) { return Error{ErrorCode::Refused, std::move(reason)}; }

std::string range(int least, int most) {
  return (least == most ? "" : std::to_string(least) + ":") + std::to_string(most);
}
// A Hello with a node rank is from a fixed-size job.
std::string nodes_text(const Hello& hello) {
  return range(hello.node_rank ? hello.node_count : hello.min_node_count, hello.node_count);
}

std::optional<Error> line_objection(const RoundState& state, const Hello& hello) {
  if (hello.node_rank)
    return refused("it was given --node-rank=" + std::to_string(*hello.node_rank) +
                   ", but this job's nodes get their numbers from the coordinator; leave it out");
  if (state.line.size() >= most_in_line(state))
    return refused("too many nodes wait there already (" + std::to_string(state.line.size()) + ")");
  const JoinedNode* host = hello.is_coordinator ? host_of(state) : nullptr;
  if (host == nullptr || host->hello.instance == hello.instance) return std::nullopt;
  return refused("host " + host->hello.host + " (pid " + std::to_string(host->hello.pid) +
                 ") is the coordinator there already; give is_host=1 to one node, or none");
}

std::optional<Error> rank_objection(const RoundState& state, const Hello& hello) {
  if (!hello.node_rank) return refused("it names no node rank; give it a --node_rank");
  const int node_rank = *hello.node_rank;
  const int nodes = state.rules.max_nodes;
  if (node_rank >= nodes)
    return refused("node rank " + std::to_string(node_rank) + " is out of range: --nnodes=" +
                   std::to_string(nodes) + " has node ranks 0 to " + std::to_string(nodes - 1));
  const JoinedNode* holder = holder_of(state, node_rank);
  if (holder == nullptr) return std::nullopt;
  const bool is_back =
      holder->hello.instance == hello.instance && state.phase == RoundPhase::Joining;
  if (is_back) return std::nullopt;
  return refused("node rank " + std::to_string(node_rank) + " is taken by host " +
                 holder->hello.host + " (pid " + std::to_string(holder->hello.pid) +
                 "); give each node a different --node_rank");
}

// Sent by the coordinator's own agent, through a translated address.
bool is_own_probe(const RoundState& state, const Hello& hello) {
  const JoinedNode* host = host_of(state);
  return hello.is_probe && host != nullptr && host->hello.instance == hello.instance;
}

}  // namespace

std::optional<Error> objection(const RoundState& state, const Hello& hello) {
  const WorldRules& rules = state.rules;
  if (state.phase == RoundPhase::Ending || state.phase == RoundPhase::Over)
    return Error{ErrorCode::Closed, "the job there is over; start it again on all nodes"};
  if (hello.run_id != state.spec.run_id)
    return refused("it belongs to run id \"" + hello.run_id + "\", but this is run id \"" +
                   state.spec.run_id +
                   "\"; give the same --rdzv-id on all nodes, or another job another port");
  const bool is_same_range = rules.pins_ranks || hello.min_node_count == rules.min_nodes;
  if (hello.node_count != rules.max_nodes || !is_same_range)
    return refused("it was started with --nnodes=" + nodes_text(hello) +
                   ", but the coordinator with --nnodes=" +
                   range(rules.min_nodes, rules.max_nodes) + "; give the same number on all nodes");
  const bool is_gathered = state.spec.line_window_bytes > 0;
  if (hello.gathers != is_gathered)
    return refused(std::string("it was started ") + (hello.gathers ? "with" : "without") +
                   " --gather-logs, but the coordinator " + (is_gathered ? "with" : "without") +
                   " it; give it to all nodes, or to none");
  if (auto error = rules.pins_ranks ? rank_objection(state, hello) : line_objection(state, hello))
    return error;
  if (hello.local_world_size < 1 || hello.local_world_size > kMostLocalWorkers ||
      hello.local_world_size > kMostWorkers - state.world_size - state.line_workers)
    return refused("--nproc_per_node=" + std::to_string(hello.local_world_size) +
                   " is not a number of workers that a world can take");
  return std::nullopt;
}

// --- Joining

namespace {

// Whether another agent may hold the newcomer's identity.
enum class Identity { Check, Settled };

// "node 2 (b)" or "a node on host b". `article`: of the latter.
std::string name_of(const Hello& hello, const char* article) {
  return hello.node_rank ? node_text(*hello.node_rank, hello.host)
                         : std::string(article) + " node on host " + hello.host;
}

// Returns true if the newcomer's admission depends on the agent that holds its identity.
bool is_contested(RoundStep& step, const Newcomer& newcomer) {
  RoundState& state = step.state;
  const auto& [peer, hello, address] = newcomer;
  const auto known = state.known.find(agent_id(hello, address));
  if (known == state.known.end() || !known->second.peer) return false;
  const Peer holder = *known->second.peer;
  const JoinedNode* self = member_of(state, holder);
  if (self == nullptr || self->hello.instance == hello.instance) return false;
  const auto added = state.contests.add(holder, newcomer, step.now);
  if (!added) {
    step.log(LogLevel::Warning, "dropped " + address +
                                    ": too many agents claim the identity of host " + hello.host +
                                    " at the same time");
    step.drop(peer);
    return true;
  }
  step.log(LogLevel::Debug, "an agent on host " + hello.host + " at " + address +
                                " claims the identity of a member; checking whether that one is "
                                "alive");
  if (added->replaced) step.drop(*added->replaced);
  if (added->check) step.send(holder, LivenessCheck{*added->check});
  return true;
}

void refuse(RoundStep& step, const Newcomer& newcomer, Error error) {
  const std::string name = name_of(newcomer.hello, "a");
  step.log(LogLevel::Warning, "refused " + name + " at " + newcomer.address + ": " + error.message);
  step.send(newcomer.peer,
            Refused{with_context(std::move(error), step.state.spec.endpoint + " refused " + name)});
  step.drop(newcomer.peer);
}

// Removes an agent that was admitted before the members reported that it had been excluded.
void turn_out(RoundStep& step, const AgentId& id) {
  RoundState& state = step.state;
  const auto known = state.known.find(id);
  if (known == state.known.end() || !known->second.peer) return;
  const Peer peer = *known->second.peer;
  const JoinedNode* self = member_of(state, peer);
  if (self == nullptr) return;
  const Error error = with_context(*exclusion_objection(state.exclusions, id),
                                   state.spec.endpoint + " sends it away");
  step.log(LogLevel::Warning, id.first + ": " + error.message);
  step.send(peer, Finish{outcome_of(state, NotRun{error}, step.now)});
  // If it is the coordinator's own agent, it gives up the lead, and the others elect another one.
  if (!self->hello.is_coordinator) drop_member(step, peer, "it was left out of this job");
}

void join_line(RoundStep& step, const Newcomer& newcomer) {
  RoundState& state = step.state;
  const auto& [peer, hello, address] = newcomer;
  if (const auto before = stand_in_line(state, peer, hello, agent_id(hello, address), step.now)) {
    const auto seat = state.node_of.find(*before);
    if (seat != state.node_of.end())
      drop_node(step, seat->second, "its agent reconnected");
    else
      step.drop(*before);
  }
  if (state.phase == RoundPhase::Joining) return form_world(step, LastCall::Wait);
  if (state.phase == RoundPhase::Running && state.line.contains(peer))
    step.send(peer, roll_for_spares(state));
}

// "node 1 (b) joined from 10.0.0.2:4000: 2 of 3 nodes"; without the numbers if nodes may come and
// go.
std::string joined_text(const RoundState& state, const Newcomer& newcomer) {
  const std::string text = name_of(newcomer.hello, "a") + " joined from " + newcomer.address;
  if (!state.rules.pins_ranks) return text;
  const bool is_back = holder_of(state, *newcomer.hello.node_rank) != nullptr;
  return text + ": " + std::to_string(state.line.size() + (is_back ? 0 : 1)) + " of " +
         std::to_string(state.rules.max_nodes) + " nodes";
}

void admit(RoundStep& step, Newcomer newcomer, Identity identity) {
  RoundState& state = step.state;
  const Peer peer = newcomer.peer;
  Hello& hello = newcomer.hello;
  // Of several claimants, an earlier one made the coordinator step down.
  if (state.phase == RoundPhase::SteppedDown) return step.drop(peer);
  if (state.rules.pins_ranks) hello.is_coordinator = hello.node_rank == 0;
  std::optional<Error> error = objection(state, hello);
  if (!error) error = exclusion_objection(state.exclusions, agent_id(hello, newcomer.address));
  if (hello.is_probe && (!error || is_own_probe(state, hello))) {
    step.send(peer, Refused{{ErrorCode::Closed, "no objection"}});
    return step.drop(peer);
  }
  if (error) return refuse(step, newcomer, *std::move(error));
  if (identity == Identity::Check && is_contested(step, newcomer)) return;
  step.send(peer,
            Welcome{state.spec.heartbeat_timeout, state.spec.term, state.spec.line_window_bytes});
  step.log(LogLevel::Debug, joined_text(state, newcomer));
  tell_records(step, peer);
  if (hello.past && state.rules.replaces_nodes) {
    for (const AgentId& id : inherit(state, *hello.past, step.now)) turn_out(step, id);
  }
  // The round may have waited only for an agent that was turned out.
  if (state.phase == RoundPhase::SteppedDown) return step.drop(peer);
  if (!tells_the_end(state)) return join_line(step, newcomer);
  step.send(peer, Refused{{ErrorCode::Closed, "the job there has just ended"}});
  step.drop(peer);
}

// The first claimant takes the place of the agent that is gone. The others then claim its identity.
void admit_claimants(RoundStep& step, const std::vector<Newcomer>& claimants) {
  Identity identity = Identity::Settled;
  for (const Newcomer& claimant : claimants)
    admit(step, claimant, std::exchange(identity, Identity::Check));
}

}  // namespace

void admit(RoundStep& step, Newcomer newcomer) {
  admit(step, std::move(newcomer), Identity::Check);
}

void refuse_claimants(RoundStep& step, Peer holder, std::uint64_t check) {
  for (const Newcomer& claimant : step.state.contests.take_answered(holder, check)) {
    const Hello& hello = claimant.hello;
    const std::string from = claimant.address.substr(0, claimant.address.rfind(':'));
    const std::string reason = "another agent with host name " + hello.host + ", address " + from +
                               " and slot " + std::to_string(hello.slot) +
                               " is a member of this job and is running; give each container its "
                               "own host name, or stop the other agent";
    refuse(step, claimant, refused(reason));
  }
}

void admit_claimants_of(RoundStep& step, Peer holder) {
  admit_claimants(step, step.state.contests.take_of(holder));
}

void settle_contests(RoundStep& step) {
  while (true) {
    const auto claimants = step.state.contests.take_expired(step.now);
    if (claimants.empty()) return;
    admit_claimants(step, claimants);
  }
}

// --- Nodes in the line

namespace {

void receive_signal_in_line(RoundStep& step, Peer peer, int signal) {
  RoundState& state = step.state;
  const JoinedNode waiting = state.line.at(peer);
  const Hello& hello = waiting.hello;
  const Interrupted ending{signal, rank_of(state, waiting), hello.host};
  if (state.phase == RoundPhase::Ending) return;
  if (!state.rules.replaces_nodes || (hello.is_coordinator && !state.has_successor))
    return end_with(step, ending, hello.host + " was sent a signal");
  step.send(peer, Finish{outcome_of(state, ending, step.now)});
  step.drop(peer);
  if (hello.is_coordinator) {
    leave_line(state, peer);
    return step_down(step);
  }
  lose_from_line(step, peer, "it was sent " + signal_name(signal));
}

// Whether the job ends if the coordinator's own agent leaves the line. It cannot reconnect, as it
// is in the same process, with two exceptions: node 0 of a fixed job keeps its place until its
// agent ends. And a coordinator that was just elected may have kept its own agent waiting for too
// long; that agent reconnects.
bool needs_host_in_line(const RoundState& state) {
  return state.rules.replaces_nodes && state.spec.term == 0;
}

}  // namespace

void receive_from_line(RoundStep& step, Peer peer, const MemberMessage& message) {
  RoundState& state = step.state;
  if (std::holds_alternative<Ping>(message)) return step.send(peer, Pong{});
  if (const auto* told = std::get_if<TimesReport>(&message)) {
    JoinedNode& self = state.line.at(peer);
    self.times = told->times;
    self.times_at = step.now;
    return;
  }
  if (const auto* query = std::get_if<Query>(&message)) return receive_query(step, peer, *query);
  if (const auto* given = std::get_if<NodeAnswer>(&message)) {
    if (!receive_answer(step, peer, *given)) drop_member(step, peer, kBrokeProtocol);
    return;
  }
  if (const auto* reply = std::get_if<LivenessReply>(&message))
    return refuse_claimants(step, peer, reply->check);
  if (const auto* signaled = std::get_if<Signaled>(&message))
    return receive_signal_in_line(step, peer, signaled->signal);
  // From a round that it was in before it reconnected.
  if (!std::holds_alternative<Hello>(message) && state.first_world) return;
  drop_member(step, peer, kBrokeProtocol);
}

void lose_from_line(RoundStep& step, Peer peer, const std::string& reason) {
  RoundState& state = step.state;
  const JoinedNode waiting = state.line.at(peer);
  leave_line(state, peer);
  if (state.phase == RoundPhase::Ending) return over_if_alone(step);
  const std::string name = name_of(waiting.hello, "the");
  if (waiting.stays) {
    const int rank = rank_of(state, waiting).value_or(0);
    state.last_loss = NodeLost{rank, waiting.hello.host, false, reason};
  }
  if (state.phase != RoundPhase::Joining)
    return step.log(LogLevel::Debug, name + " left the line: " + reason);
  step.log(LogLevel::Warning, name + " left before the world was complete: " + reason);
  if (waiting.hello.is_coordinator && needs_host_in_line(state))
    return finish(step, NodeLost{0, waiting.hello.host, true, reason});
  form_world(step, LastCall::Wait);
}

// --- Nodes of the world

void lose_node(RoundStep& step, int node, const std::string& reason) {
  RoundState& state = step.state;
  RoundNode& self = node_at(state, node);
  if (self.is_lost) return;
  state.node_of.erase(self.peer);
  --state.present_count;
  self.is_lost = true;
  if (state.phase == RoundPhase::Ending) {
    note_leaving(state, self);
    return over_if_alone(step);
  }
  note_loss(state, self, step.now);
  record(state, self.id);
  const std::string cause = "lost " + name_of(state, node) + ": " + reason;
  step.log(LogLevel::Error, cause);
  state.last_loss = NodeLost{node, self.hello.host, false, reason};
  if (state.phase == RoundPhase::Stopping) mark_done(state, node);
  // An elected coordinator hands the job over if another one can lead: after a suspension it loses
  // its own agent and all members at the same moment, and no member is left to get an outcome.
  if (self.hello.is_coordinator && state.spec.term > 0 && state.has_successor)
    return step_down(step);
  if (loss_ends_job(state, node)) return end_with(step, node_lost(state, node, reason), cause);
  // All its workers had returned 0, so the round can complete without it.
  if (state.phase == RoundPhase::Running && self.is_done) return;
  if (state.phase == RoundPhase::Running) stop_round(step, cause);
  conclude_if_stopped(step);
}

void drop_node(RoundStep& step, int node, const std::string& reason) {
  const Peer peer = node_at(step.state, node).peer;
  lose_answers(step.state, peer, reason);
  step.drop(peer);
  lose_node(step, node, reason);
}

// --- Members of either kind

void drop_member(RoundStep& step, Peer peer, const std::string& reason) {
  const auto seat = step.state.node_of.find(peer);
  if (seat != step.state.node_of.end()) return drop_node(step, seat->second, reason);
  step.drop(peer);
  lose_from_line(step, peer, reason);
}

void sweep(RoundStep& step) {
  RoundState& state = step.state;
  // A late sweep means that this process was delayed (stopped, swapped out): then no member is
  // considered silent.
  const bool was_held_up = step.now - state.next_sweep > state.spec.heartbeat_timeout / 4;
  state.next_sweep = step.now + sweep_interval(state);
  if (was_held_up) {
    for (RoundNode& node : state.nodes) node.heard = step.now;
    for (auto& [peer, waiting] : state.line) waiting.heard = step.now;
    return;
  }
  const Time oldest = step.now - state.spec.heartbeat_timeout;
  const std::string reason = "no sign of life for " + duration_text(state.spec.heartbeat_timeout);
  for (std::size_t i = 0; i < state.nodes.size(); ++i) {
    const RoundNode& node = state.nodes[i];
    if (!node.is_lost && node.heard < oldest) drop_node(step, static_cast<int>(i), reason);
  }
  std::vector<Peer> silent;
  for (const JoinedNode* waiting : line_in_order(state)) {
    if (waiting->heard < oldest) silent.push_back(waiting->peer);
  }
  for (const Peer peer : silent) {
    if (state.line.contains(peer)) drop_member(step, peer, reason);
  }
  if (has_joiner(state, step.now)) stop_round(step, "a node joins");
}

}  // namespace drun::rendezvous
