#include "rendezvous/coordinator/round.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/text.h"
#include "rendezvous/coordinator/admission.h"
#include "rendezvous/coordinator/elastic_world.h"
#include "rendezvous/coordinator/query_results.h"
#include "rendezvous/coordinator/rank_assignment.h"
#include "rendezvous/coordinator/takeover.h"
#include "rendezvous/protocol/control_wire.h"
#include "rendezvous/protocol/membership_text.h"

namespace drun::rendezvous {

constexpr const char* kBrokeProtocol = "it broke the control protocol";

// One step of the coordinator's state machine. Collects the actions that the event causes.
class RoundTurn {
 public:
  RoundTurn(RoundState& state, Time now) : state_(state), now_(now) {}

  void handle(const PeerArrived& arrived);
  void handle(const PeerSaid& said);
  void handle(const PeerLeft& left);
  void handle(const CoordinatorEnded&);
  void handle(const DeadlineKnown& known) { state_.deadline = known.deadline; }
  void handle(const RoundTick&);

  std::vector<RoundAction> take_actions() { return std::move(actions_); }
  // Called after each event.
  void conclude_queries();
  void conclude_records();

 private:
  // --- Membership
  enum class Identity { Check, Settled };  // whether another agent may hold the newcomer's
  void admit(Peer peer, const Hello& hello, const std::string& address,
             Identity identity = Identity::Check);
  void take_place(Peer peer, const Hello& hello);
  void drop_member(int node, const std::string& reason);
  void over_if_alone();
  void sweep();
  void time_is_up();

  // --- Worlds
  void receive(int node, const Hello&) { drop_member(node, "a second hello"); }
  void receive(int node, const Failed& failed);
  void receive(int node, const AllReturned& returned);
  void receive(int node, const Stopped& stopped);
  void receive(int node, const Signaled& signaled);
  void receive(int node, const Ping&) { send(node_at(node).peer, Pong{}); }
  void receive(int node, const Ballot&) { drop_member(node, kBrokeProtocol); }
  void receive(int node, const FaultInjected& told);
  void receive(int node, const TimesReport& told);
  void receive(int node, const SpeedReport& told);
  void receive(int, const Lines&) {}  // handled by LogCollector
  void begin_world();
  void stop_round(std::string cause, bool is_failure, std::optional<StopNotice> notice = {});
  void end_with(Ending ending, std::string cause, std::optional<StopNotice> notice = {});
  void preempt();
  void conclude_if_stopped();
  void restart();
  bool leave_out_unusable();
  void replace_slow();
  bool can_be_replaced(int node) const;
  bool can_do_without(int node) const;
  void check_failed();
  bool ends_by_failure() const;
  void next_world();
  void finish(Ending ending);
  void node_left(int node, const std::string& reason);
  bool add_failure(int node, const AgedFailure& aged);
  bool is_current(int node, int round);
  void mark_done(int node);
  std::optional<std::string> no_restart() const;
  FailureStreak streak_with_this_round() const;
  RoundFault fault_of_round() const;
  void note_progress(const WorkProgress& progress);

  // --- Queries
  void receive(int node, const Query& query) { answer_query(node_at(node).peer, query); }
  void receive(int node, const NodeAnswer& given) { take_answer(node_at(node).peer, given); }
  void answer_query(Peer peer, const Query& query);
  OpenQuery& ask(QueryKind kind, std::vector<Peer> peers, std::string question = {});
  void take_answer(Peer peer, const NodeAnswer& given);
  bool add_stacks(OpenQuery& query, Peer peer, std::string_view answer) const;
  void lose_answers(Peer peer, const std::string& reason);
  void conclude(OpenQuery& query);

  // --- Hangs
  void receive(int node, const HangSuspected& suspected);
  void look_at_suspects();
  void judge_hang(StackAnswers& stacks, const std::string& evidence);
  void forget_suspects();

  // --- Records
  void record(const AgentId& id);
  void send_records();
  void tell_restarts();
  void tell_records(Peer peer);
  void hear_of_past(const Past& past);
  void turn_out(const AgentId& id);

  // --- Elastic worlds
  void receive(int node, const LivenessReply& reply) {
    refuse_claimants(node_at(node).peer, reply.check);
  }
  bool is_contested(Peer peer, const Hello& hello, const std::string& address);
  void refuse_claimants(Peer holder, std::uint64_t check);
  void settle_contests();
  void admit_claimants(const std::vector<IdentityContests::Claimant>& claimants);
  void drop_claimants();
  void admit_to_line(Peer peer, const Hello& hello, const std::string& address);
  void waiter_said(Peer peer, const MemberMessage& message);
  void waiter_left(Peer peer, const std::string& reason);
  void drop_waiter(Peer peer, const std::string& reason);
  void lose_seat(int node, const std::string& reason);
  bool can_leave(int node) const;
  void let_go(int node, int signal);
  void dismiss(int node);
  void vacate(int node, const Ending& ending);
  std::optional<int> leaving_coordinator() const;
  void step_down();
  void leave_out_culprit();
  void leave_out_node(int node, std::string reason, Ending ending);
  void form_world(bool is_at_once);
  void line_sweep();
  void waited_too_long();

  RoundNode& node_at(int node) { return state_.nodes[static_cast<std::size_t>(node)]; }
  const RoundNode& node_at(int node) const { return state_.nodes[static_cast<std::size_t>(node)]; }
  std::string name_of(int node) const;
  std::vector<Peer> present_peers() const;
  bool is_elastic() const { return state_.spec.elastic.has_value(); }

  void send(Peer peer, CoordinatorMessage message) {
    actions_.emplace_back(SendTo{peer, std::move(message)});
  }
  void send_all(CoordinatorMessage message) {
    actions_.emplace_back(SendAll{present_peers(), std::move(message)});
  }
  void drop(Peer peer) {
    lose_answers(peer, "it was disconnected");
    actions_.emplace_back(Drop{peer});
  }
  void log(LogLevel level, std::string text) {
    actions_.emplace_back(RoundLog{level, std::move(text)});
  }

  RoundState& state_;
  const Time now_;
  std::vector<RoundAction> actions_;
};

namespace {

using Presence = RoundNode::Presence;

constexpr std::chrono::seconds kRollCallInterval{10};
constexpr std::chrono::minutes kBetweenReplacements{10};  // of slow nodes

// The coordinator's own agent, if it is a member. In a fixed world it is node 0's.
std::optional<Peer> host_peer(const RoundState& state) {
  for (std::size_t i = 0; i < state.nodes.size(); ++i) {
    const RoundNode& node = state.nodes[i];
    const bool is_coordinator = state.spec.elastic ? node.hello.is_coordinator : i == 0;
    if (is_coordinator && node.presence == Presence::Present) return node.peer;
  }
  for (const auto& [peer, candidate] : state.line) {
    if (candidate.hello.is_coordinator) return peer;
  }
  return std::nullopt;
}

// A silent member is detected at most this long after the heartbeat timeout.
constexpr Milliseconds kMostSweepInterval{500};

Time::duration sweep_interval(const RoundState& state) {
  return std::min<Time::duration>(state.spec.heartbeat_timeout / 4, kMostSweepInterval);
}

}  // namespace

void RoundTurn::handle(const PeerArrived& arrived) {
  const auto* hello = std::get_if<Hello>(&arrived.message);
  if (state_.phase != RoundPhase::Over && hello != nullptr)
    return admit(arrived.peer, *hello, arrived.address);
  log(LogLevel::Warning,
      "dropped a connection from " + arrived.address + ": " +
          (hello != nullptr ? "the job is over" : "it did not begin with hello"));
  drop(arrived.peer);
}

void RoundTurn::handle(const PeerSaid& said) {
  if (const auto waiter = state_.line.find(said.peer); waiter != state_.line.end()) {
    waiter->second.heard = now_;
    return waiter_said(said.peer, said.message);
  }
  if (state_.contests.has_claimant(said.peer)) return;  // its admission is not decided yet
  const auto found = state_.node_of.find(said.peer);
  if (found == state_.node_of.end()) return;  // sent before it was dropped
  const int node = found->second;
  node_at(node).heard = now_;
  std::visit([this, node](const auto& message) { receive(node, message); }, said.message);
}

void RoundTurn::handle(const PeerLeft& left) {
  lose_answers(left.peer, left.reason);
  state_.contests.remove_claimant(left.peer);
  const auto found = state_.node_of.find(left.peer);
  if (state_.line.contains(left.peer)) {
    waiter_left(left.peer, left.reason);
    return admit_claimants(state_.contests.take_of(left.peer));
  }
  if (found != state_.node_of.end()) {
    node_left(found->second, left.reason);
    return admit_claimants(state_.contests.take_of(left.peer));
  }
}

// For example, its agent was stopped before it joined. Nothing else would end this coordinator.
void RoundTurn::handle(const CoordinatorEnded&) {
  if (state_.phase == RoundPhase::Ending || state_.phase == RoundPhase::Over) return;
  const std::string reason = "the coordinator's agent has ended";
  if (const std::optional<Peer> host = host_peer(state_)) {
    drop(*host);
    handle(PeerLeft{*host, reason});
  }
  if (state_.phase == RoundPhase::Joining || state_.phase == RoundPhase::Pausing)
    finish(NodeLost{0, state_.spec.master_addr, true, reason});
}

void RoundTurn::handle(const RoundTick&) {
  settle_contests();
  if (state_.deadline && now_ >= state_.deadline->signal_at) preempt();
  if (state_.phase == RoundPhase::Ending && now_ >= state_.end_by) return time_is_up();
  if (now_ >= state_.next_sweep) sweep();
  look_at_suspects();
  if (state_.phase == RoundPhase::Pausing && now_ >= state_.resume_at) return next_world();
  if (state_.phase != RoundPhase::Joining) return;
  if (is_elastic()) form_world(false);
  if (state_.phase != RoundPhase::Joining) return;
  if (!state_.last_call && now_ >= state_.opened + state_.spec.join_timeout) {
    if (is_elastic()) return waited_too_long();
    return finish(NotRun{{ErrorCode::Timeout, timeout_text(roll(state_, now_), state_.spec.endpoint,
                                                           state_.spec.join_timeout)}});
  }
  if (now_ < state_.next_roll_call) return;
  state_.next_roll_call = now_ + kRollCallInterval;
  send_all(roll(state_, now_));
}

// Members that have not read the outcome by now are disconnected.
void RoundTurn::time_is_up() {
  for (const Peer peer : present_peers()) drop(peer);
  state_.present_count = 0;
  state_.line.clear();
  over_if_alone();
}

void RoundTurn::admit(Peer peer, const Hello& hello, const std::string& address,
                      Identity identity) {
  const std::string name =
      hello.node_rank ? node_text(*hello.node_rank, hello.host) : "a node on host " + hello.host;
  std::optional<Error> error = objection(state_, hello);
  if (!error && is_elastic())
    error = exclusion_objection(state_.exclusions, agent_id(hello, address));
  if (hello.is_probe && (!error || is_own_probe(state_, hello))) {
    send(peer, Refused{{ErrorCode::Closed, "no objection"}});
    return drop(peer);
  }
  if (error) {
    log(LogLevel::Warning, "refused " + name + " at " + address + ": " + error->message);
    send(peer, Refused{with_context(*std::move(error), state_.spec.endpoint + " refused " + name)});
    return drop(peer);
  }
  if (identity == Identity::Check && is_contested(peer, hello, address)) return;
  send(peer,
       Welcome{state_.spec.heartbeat_timeout, state_.spec.term, state_.spec.line_window_bytes});
  if (is_elastic()) {
    log(LogLevel::Debug, name + " joined from " + address);
    tell_records(peer);
    if (hello.past) hear_of_past(*hello.past);
    if (state_.phase != RoundPhase::Ending && state_.phase != RoundPhase::Over)
      return admit_to_line(peer, hello, address);
    send(peer, Refused{{ErrorCode::Closed, "the job there has just ended"}});
    return drop(peer);
  }
  take_place(peer, hello);
  log(LogLevel::Debug, name + " joined from " + address + ": " +
                           std::to_string(state_.present_count) + " of " +
                           std::to_string(state_.spec.node_count) + " nodes");
  if (state_.present_count == state_.spec.node_count) begin_world();
}

// For worlds of fixed size: a member's place is its node rank.
void RoundTurn::take_place(Peer peer, const Hello& hello) {
  RoundNode& node = node_at(*hello.node_rank);
  if (node.presence == Presence::Present) {  // the same member on a new connection
    state_.node_of.erase(node.peer);
    drop(node.peer);
    state_.world_size -= node.hello.local_world_size;
  } else {
    ++state_.present_count;
  }
  node = RoundNode{.presence = Presence::Present, .peer = peer, .heard = now_, .hello = hello};
  state_.node_of[peer] = *hello.node_rank;
  state_.world_size += hello.local_world_size;
}

void RoundTurn::drop_member(int node, const std::string& reason) {
  lose_answers(node_at(node).peer, reason);
  drop(node_at(node).peer);
  node_left(node, reason);
}

void RoundTurn::over_if_alone() {
  if (state_.present_count > 0 || !state_.line.empty()) return;
  state_.phase = RoundPhase::Over;
  drop_claimants();
  state_.node_of.clear();
  actions_.emplace_back(RoundOver{});
}

// Silence is checked in sweeps, so that a message costs O(1). A late sweep means that this process
// was delayed (stopped, swapped out): then no member is considered silent.
void RoundTurn::sweep() {
  const bool was_held_up = now_ - state_.next_sweep > state_.spec.heartbeat_timeout / 4;
  state_.next_sweep = now_ + sweep_interval(state_);
  if (was_held_up) {
    for (RoundNode& node : state_.nodes) node.heard = now_;
    for (auto& [peer, candidate] : state_.line) candidate.heard = now_;
    return;
  }
  const Time oldest = now_ - state_.spec.heartbeat_timeout;
  for (std::size_t i = 0; i < state_.nodes.size(); ++i) {
    const RoundNode& node = state_.nodes[i];
    if (node.presence == Presence::Present && node.heard < oldest)
      drop_member(static_cast<int>(i),
                  "no sign of life for " + duration_text(state_.spec.heartbeat_timeout));
  }
  if (is_elastic()) line_sweep();
}

std::string RoundTurn::name_of(int node) const { return node_text(node, node_at(node).hello.host); }

std::vector<Peer> RoundTurn::present_peers() const {
  const bool is_for_line =
      state_.phase == RoundPhase::Joining || state_.phase == RoundPhase::Ending;
  return is_for_line ? all_peers(state_) : seated_peers(state_);
}

RoundState open_round(RoundSpec spec, Time now) {
  assert(spec.node_count > 0);
  RoundState state;
  if (!spec.elastic) state.nodes.resize(static_cast<std::size_t>(spec.node_count));
  state.is_checked = !spec.preflight || spec.rounds > 0;  // by a coordinator before
  state.spec = std::move(spec);
  state.next_round = state.spec.rounds;
  state.opened = now;
  state.next_sweep = now + sweep_interval(state);
  state.next_roll_call = now + kRollCallInterval;
  return state;
}

std::vector<RoundAction> step(RoundState& state, const RoundEvent& event, Time now) {
  RoundTurn turn(state, now);
  std::visit([&turn](const auto& happened) { turn.handle(happened); }, event);
  turn.conclude_queries();
  turn.conclude_records();
  return turn.take_actions();
}

namespace {

std::optional<Time> phase_deadline(const RoundState& state) {
  switch (state.phase) {
    case RoundPhase::Joining:
      return std::min({state.next_sweep, state.next_roll_call,
                       state.last_call.value_or(state.opened + state.spec.join_timeout)});
    case RoundPhase::Running:
    case RoundPhase::Stopping:
      return std::min(state.next_sweep, state.look_at.value_or(state.next_sweep));
    case RoundPhase::Pausing:
      return std::min(state.next_sweep, state.resume_at);
    case RoundPhase::Ending:
      return std::min(state.end_by, state.next_sweep);
    case RoundPhase::Over:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Time> deadline(const RoundState& state) {
  std::optional<Time> wanted = phase_deadline(state);
  if (!wanted) return wanted;
  wanted = std::min(*wanted, state.queries.next_deadline().value_or(*wanted));
  if (state.deadline) wanted = std::min(*wanted, state.deadline->signal_at);
  if (!state.untold.empty()) wanted = std::min(*wanted, state.tell_from);
  return std::min(*wanted, state.contests.next_expiry().value_or(*wanted));
}

// --- Elastic worlds: nodes that wait, join and leave

namespace {

using Presence = RoundNode::Presence;

// The agent's node rank in the last world.
std::optional<int> rank_of(const RoundState& state, const AgentId& id) {
  const auto known = state.known.find(id);
  return known == state.known.end() ? std::nullopt : known->second.rank;
}

}  // namespace

// Returns true if the newcomer's admission depends on the agent that holds its identity.
bool RoundTurn::is_contested(Peer peer, const Hello& hello, const std::string& address) {
  if (!is_elastic()) return false;
  const auto known = state_.known.find(agent_id(hello, address));
  if (known == state_.known.end() || !known->second.peer) return false;
  const Peer holder = *known->second.peer;
  const auto waiter = state_.line.find(holder);
  const auto seat = state_.node_of.find(holder);
  const bool is_here = waiter != state_.line.end() || seat != state_.node_of.end();
  const auto instance = [&] {
    return waiter != state_.line.end() ? waiter->second.hello.instance
                                       : node_at(seat->second).hello.instance;
  };
  if (!is_here || instance() == hello.instance) return false;
  const auto added = state_.contests.add(holder, {peer, hello, address}, now_);
  if (!added) {
    log(LogLevel::Warning, "dropped " + address + ": too many agents claim the identity of host " +
                               hello.host + " at the same time");
    drop(peer);
    return true;
  }
  log(LogLevel::Debug, "an agent on host " + hello.host + " at " + address +
                           " claims the identity of a member; checking whether that one is alive");
  if (added->replaced) drop(*added->replaced);
  if (added->check) send(holder, LivenessCheck{*added->check});
  return true;
}

void RoundTurn::refuse_claimants(Peer holder, std::uint64_t check) {
  for (const auto& claimant : state_.contests.take_answered(holder, check)) {
    const Hello& hello = claimant.hello;
    const std::string from = claimant.address.substr(0, claimant.address.rfind(':'));
    const std::string reason = "another agent with host name " + hello.host + ", address " + from +
                               " and slot " + std::to_string(hello.slot) +
                               " is a member of this job and is running; give each container its "
                               "own host name, or stop the other agent";
    const std::string name = "a node on host " + hello.host;
    log(LogLevel::Warning, "refused " + name + " at " + claimant.address + ": " + reason);
    send(claimant.peer, Refused{with_context(Error{ErrorCode::Refused, reason},
                                             state_.spec.endpoint + " refused " + name)});
    drop(claimant.peer);
  }
}

void RoundTurn::settle_contests() {
  while (true) {
    const auto claimants = state_.contests.take_expired(now_);
    if (claimants.empty()) return;
    admit_claimants(claimants);
  }
}

// The first claimant takes the place of the agent that is gone. The others then claim its identity.
void RoundTurn::admit_claimants(const std::vector<IdentityContests::Claimant>& claimants) {
  Identity identity = Identity::Settled;
  for (const auto& claimant : claimants) {
    admit(claimant.peer, claimant.hello, claimant.address,
          std::exchange(identity, Identity::Check));
  }
}

void RoundTurn::drop_claimants() {
  for (const auto& claimant : state_.contests.take_all()) drop(claimant.peer);
}

void RoundTurn::admit_to_line(Peer peer, const Hello& hello, const std::string& address) {
  const std::optional<Peer> before =
      stand_in_line(state_, peer, hello, agent_id(hello, address), now_);
  if (before) {
    const auto seat = state_.node_of.find(*before);
    if (seat != state_.node_of.end())
      drop_member(seat->second, "its agent reconnected");
    else
      drop(*before);
  }
  if (state_.phase == RoundPhase::Joining) return form_world(false);
  if (state_.phase == RoundPhase::Running && state_.line.contains(peer))
    send(peer, elastic_roll(state_, true, now_));
}

void RoundTurn::waiter_said(Peer peer, const MemberMessage& message) {
  if (std::holds_alternative<Ping>(message)) return send(peer, Pong{});
  if (const auto* told = std::get_if<TimesReport>(&message)) {
    Candidate& self = state_.line.at(peer);
    self.times = told->times;
    self.times_at = now_;
    return;
  }
  if (const auto* query = std::get_if<Query>(&message)) return answer_query(peer, *query);
  if (const auto* given = std::get_if<NodeAnswer>(&message)) return take_answer(peer, *given);
  if (const auto* reply = std::get_if<LivenessReply>(&message))
    return refuse_claimants(peer, reply->check);
  if (const auto* signaled = std::get_if<Signaled>(&message)) {
    const Candidate waiter = state_.line.at(peer);
    const Hello& hello = waiter.hello;
    const Interrupted ending{signaled->signal, rank_of(state_, waiter.id), hello.host};
    if (state_.phase == RoundPhase::Ending) return;
    if (hello.is_coordinator && !state_.has_successor)
      return end_with(ending, hello.host + " was sent a signal");
    send(peer, Finish{outcome_of(state_, ending, now_)});
    drop(peer);
    if (hello.is_coordinator) {
      leave_line(state_, peer);
      return step_down();
    }
    return waiter_left(peer, "it was sent " + signal_name(signaled->signal));
  }
  // From a round that it was in before it reconnected.
  if (!std::holds_alternative<Hello>(message) && state_.first_world) return;
  drop_waiter(peer, kBrokeProtocol);
}

void RoundTurn::waiter_left(Peer peer, const std::string& reason) {
  const Candidate candidate = state_.line.at(peer);
  leave_line(state_, peer);
  if (state_.phase == RoundPhase::Ending) return over_if_alone();
  const std::string name = "the node on host " + candidate.hello.host;
  if (candidate.stays) {
    const int rank = rank_of(state_, candidate.id).value_or(0);
    state_.last_loss = NodeLost{rank, candidate.hello.host, false, reason};
  }
  if (state_.phase != RoundPhase::Joining)
    return log(LogLevel::Debug, name + " left the line: " + reason);
  log(LogLevel::Warning, name + " left before the world was complete: " + reason);
  // A coordinator that was just elected may have kept its own agent waiting for too long. That
  // agent reconnects.
  if (candidate.hello.is_coordinator && state_.spec.term == 0)
    return finish(NodeLost{0, candidate.hello.host, true, reason});
  form_world(false);
}

void RoundTurn::drop_waiter(Peer peer, const std::string& reason) {
  drop(peer);
  waiter_left(peer, reason);
}

void RoundTurn::lose_seat(int node, const std::string& reason) {
  RoundNode& self = node_at(node);
  if (self.presence != Presence::Present) return;
  state_.node_of.erase(self.peer);
  --state_.present_count;
  self.presence = Presence::Lost;
  if (state_.phase == RoundPhase::Ending) {
    note_leaving(state_, self);
    return over_if_alone();
  }
  note_loss(state_, self, now_);
  record(self.id);
  const std::string cause = "lost " + name_of(node) + ": " + reason;
  log(LogLevel::Error, cause);
  state_.last_loss = NodeLost{node, self.hello.host, false, reason};
  if (state_.phase == RoundPhase::Stopping) mark_done(node);
  // An elected coordinator hands the job over if another one can lead: after a suspension it loses
  // its own agent and all members at the same moment, and no member is left to get an outcome.
  if (self.hello.is_coordinator && state_.spec.term > 0 && state_.has_successor) return step_down();
  // The coordinator's own agent is in the same process: it cannot reconnect.
  if (self.hello.is_coordinator)
    return end_with(NodeLost{node, self.hello.host, true, reason}, cause);
  // All its workers had returned 0, so the round can complete without it.
  if (state_.phase == RoundPhase::Running && self.is_done) return;
  if (state_.phase == RoundPhase::Running) stop_round(cause, false);
  conclude_if_stopped();
}

bool RoundTurn::can_leave(int node) const {
  const bool is_between = state_.phase == RoundPhase::Running ||
                          state_.phase == RoundPhase::Stopping ||
                          state_.phase == RoundPhase::Pausing;
  return is_between && !state_.ending &&
         (!node_at(node).hello.is_coordinator || state_.has_successor) &&
         nodes_without(state_, node, now_) >= state_.spec.elastic->min_nodes;
}

void RoundTurn::let_go(int node, int signal) {
  RoundNode& self = node_at(node);
  if (self.leave_signal) return;
  self.leave_signal = signal;
  const bool is_coordinator = self.hello.is_coordinator;
  const std::string cause = name_of(node) + " leaves: it was sent " + signal_name(signal) +
                            (is_coordinator ? "; another node is to coordinate the job" : "");
  log(LogLevel::Info, cause);
  if (is_coordinator && state_.phase == RoundPhase::Pausing) return next_world();
  const bool is_idle = state_.phase == RoundPhase::Pausing || self.is_done;
  if (is_idle && !is_coordinator) return dismiss(node);
  if (state_.phase == RoundPhase::Running) stop_round(cause, false);
}

// The node's workers have stopped. Sends it its own outcome.
void RoundTurn::dismiss(int node) {
  const RoundNode& self = node_at(node);
  const std::string reason = "it was sent " + signal_name(*self.leave_signal);
  state_.last_loss = NodeLost{node, self.hello.host, false, reason};
  vacate(node, Interrupted{*self.leave_signal, node, self.hello.host});
}

std::optional<int> RoundTurn::leaving_coordinator() const {
  for (std::size_t i = 0; i < state_.nodes.size(); ++i) {
    if (state_.nodes[i].hello.is_coordinator && state_.nodes[i].leave_signal)
      return static_cast<int>(i);
  }
  return std::nullopt;
}

// Requires that no worker runs. Disconnects all members, which then look for the new coordinator.
void RoundTurn::step_down() {
  send_records();
  for (const RoundNode& node : state_.nodes) {
    if (node.presence == Presence::Present) drop(node.peer);
  }
  for (const auto& [peer, candidate] : state_.line) drop(peer);
  drop_claimants();
  state_ = open_round(state_.spec, now_);
  state_.phase = RoundPhase::Over;
  actions_.emplace_back(StepDown{});
}

void RoundTurn::vacate(int node, const Ending& ending) {
  RoundNode& self = node_at(node);
  send(self.peer, Finish{outcome_of(state_, ending, now_)});
  drop(self.peer);
  note_leaving(state_, self);
  state_.node_of.erase(self.peer);
  --state_.present_count;
  self.presence = Presence::Lost;
}

// Called when all nodes have stopped and another round follows. Excludes the node whose worker was
// the first to fail if that happened too often.
void RoundTurn::leave_out_culprit() {
  const int most = state_.spec.elastic->exclude_after;
  const int node = state_.failures.first().node_rank;
  const RoundNode& self = node_at(node);
  const int failures = count_failure(state_.exclusions, self.id);
  if (most == 0 || failures < most) return;
  const std::string reason = left_out_reason(failures, most);
  if (self.hello.is_coordinator)
    return log(LogLevel::Warning,
               name_of(node) + " is not left out, as the others have joined it: " + reason);
  leave_out_node(node, reason, WorkersFailed{state_.failures.failures()});
}

// `ending` is the outcome that the node itself gets.
void RoundTurn::leave_out_node(int node, std::string reason, Ending ending) {
  const RoundNode& self = node_at(node);
  if (is_left_out(state_.exclusions, self.id)) return;
  LeftOut told{node, self.hello.host, state_.round, std::move(reason)};
  leave_out(state_.exclusions, self.id, told);
  record(self.id);
  state_.last_loss.reset();
  const NodeLeftOut message{std::move(told)};
  send_all(message);
  if (self.presence == Presence::Present) vacate(node, ending);
  std::vector<Peer> back;  // the node's new connections, if it was lost and has reconnected
  for (const auto& [peer, candidate] : state_.line) {
    send(peer, message);
    if (candidate.id == self.id) back.push_back(peer);
  }
  for (const Peer peer : back) {
    send(peer, Finish{outcome_of(state_, ending, now_)});
    drop(peer);
    leave_line(state_, peer);
  }
}

// Forms the next world if there are enough nodes. If the job had to wait for them, it first waits
// for more nodes until the last call ends.
void RoundTurn::form_world(bool is_at_once) {
  is_at_once = is_at_once || has_survivors(state_);
  const int in_line = static_cast<int>(state_.line.size());
  // Until the last call ends, a hello does not cause an O(nodes) check.
  const bool is_last_call = state_.last_call && now_ < *state_.last_call && !is_at_once &&
                            in_line < state_.spec.node_count;
  if (is_last_call && in_line >= state_.spec.elastic->min_nodes) return;
  const std::vector<Peer> peers =
      in_line < state_.spec.elastic->min_nodes ? std::vector<Peer>() : next_nodes(state_, now_);
  const int count = static_cast<int>(peers.size());
  if (count < state_.spec.elastic->min_nodes) {
    state_.last_call.reset();
    if (is_at_once) state_.next_roll_call = now_;  // tell all nodes immediately why nothing runs
    return;
  }
  if (count < state_.spec.node_count && !is_at_once) {
    if (!state_.last_call) {
      state_.last_call = now_ + last_call_of(state_);
      state_.next_roll_call = std::min(state_.next_roll_call, now_ + std::chrono::seconds(1));
    }
    if (now_ < *state_.last_call) return;
  }
  state_.last_call.reset();
  take_seats(state_, peers);
  begin_world();
  for (const auto& [peer, candidate] : state_.line) send(peer, elastic_roll(state_, true, now_));
}

void RoundTurn::line_sweep() {
  const Time oldest = now_ - state_.spec.heartbeat_timeout;
  std::vector<Peer> silent;
  for (const auto& [peer, candidate] : state_.line) {
    if (candidate.heard < oldest) silent.push_back(peer);
  }
  for (const Peer peer : silent) {
    if (state_.line.contains(peer))
      drop_waiter(peer, "no sign of life for " + duration_text(state_.spec.heartbeat_timeout));
  }
  if (has_joiner(state_, now_)) stop_round("a node joins", false);
}

// The join timeout has passed with too few nodes.
void RoundTurn::waited_too_long() {
  const std::string missing = elastic_timeout_text(elastic_roll(state_, false, now_),
                                                   state_.spec.endpoint, state_.spec.join_timeout);
  if (state_.first_world && !state_.last_loss && !state_.exclusions.nodes.empty()) {
    state_.exclusions.nodes.back().told.reason += "; no replacement came: " + missing;
    return finish(WorkersFailed{state_.failures.failures()});
  }
  if (!state_.first_world || !state_.last_loss)
    return finish(NotRun{{ErrorCode::Timeout, missing}});
  NodeLost lost = *state_.last_loss;
  lost.reason += "; no replacement came: " + missing;
  finish(lost);
}

// --- Queries of nodes

void RoundTurn::answer_query(Peer peer, const Query& query) {
  const auto refuse = [&](std::string note) {
    send(peer, QueryResult{.number = query.number, .note = std::move(note)});
  };
  if (auto last = state_.queries.fresh_result(query.kind, now_)) {
    actions_.emplace_back(SendResult{{{peer, query.number}}, std::move(last)});
    return;
  }
  if (!state_.queries.has_room(query.kind, peer)) return refuse("too many ask at the same time");
  OpenQuery* open = state_.queries.shared(query.kind);
  if (open == nullptr) {
    Result<std::vector<Peer>> peers = peers_asked(state_, query);
    if (!peers) return refuse(peers.error().message);
    open = &ask(query.kind, *std::move(peers), query.question);
  }
  open->requesters.push_back({peer, query.number});
}

OpenQuery& RoundTurn::ask(QueryKind kind, std::vector<Peer> peers, std::string question) {
  OpenQuery& query = state_.queries.open(kind, peers, now_);
  if (kind == QueryKind::Stacks) {
    assert(state_.spec.make_stack_answers != nullptr);
    query.stacks = state_.spec.make_stack_answers();
  }
  actions_.emplace_back(
      SendAll{std::move(peers), NodeQuery{query.number, kind, std::move(question)}});
  return query;
}

void RoundTurn::take_answer(Peer peer, const NodeAnswer& given) {
  OpenQuery* const query = state_.queries.take_awaited(given.number, peer);
  if (query == nullptr) return;
  const bool is_good =
      query->stacks ? add_stacks(*query, peer, given.answer)
                    : query->kind != QueryKind::Status || given.answer.size() <= kMostStatusBytes;
  if (is_good) {
    if (!query->stacks) query->answers.emplace(peer, given.answer);
    return;
  }
  const auto seat = state_.node_of.find(peer);
  seat != state_.node_of.end() ? drop_member(seat->second, kBrokeProtocol)
                               : drop_waiter(peer, kBrokeProtocol);
}

// The query ends before the nodes that it has asked lose their ranks.
bool RoundTurn::add_stacks(OpenQuery& query, Peer peer, std::string_view answer) const {
  const RoundNode& node = node_at(state_.node_of.at(peer));
  return query.stacks->add({node.base_rank, node.base_rank + node.hello.local_world_size - 1},
                           answer);
}

void RoundTurn::lose_answers(Peer peer, const std::string& reason) {
  const auto seat = state_.node_of.find(peer);
  const std::string name = seat == state_.node_of.end() ? "a node" : name_of(seat->second);
  state_.queries.lose(peer, name + ": lost, " + reason);
}

void RoundTurn::conclude_queries() {
  for (OpenQuery& query : state_.queries.take_ended(now_)) conclude(query);
}

void RoundTurn::conclude(OpenQuery& query) {
  const auto shared = std::make_shared<const QueryResult>(result_of(state_, query, now_));
  state_.queries.keep(query.kind, shared, now_);
  if (!query.requesters.empty())
    actions_.emplace_back(SendResult{std::move(query.requesters), shared});
  if (query.kind == QueryKind::Stacks) judge_hang(*query.stacks, shared->answer);
}

// --- Hangs

constexpr Milliseconds kMostSettle{5000};

void RoundTurn::receive(int node, const HangSuspected& suspected) {
  if (!is_current(node, suspected.round) || state_.phase != RoundPhase::Running) return;
  const RoundNode& self = node_at(node);
  if (!state_.suspects.add({node, self.base_rank, self.hello.local_world_size}, suspected.groups))
    return drop_member(node, kBrokeProtocol);
  // An open query is also about these suspects.
  const bool is_asked = state_.look_at || state_.queries.shared(QueryKind::Stacks) != nullptr;
  if (!state_.suspects.empty() && !is_asked)
    state_.look_at = now_ + std::min(suspected.settle, kMostSettle);
}

void RoundTurn::look_at_suspects() {
  if (!state_.look_at || now_ < *state_.look_at) return;
  state_.look_at.reset();
  const bool is_asked = state_.queries.shared(QueryKind::Stacks) != nullptr;
  if (state_.phase == RoundPhase::Running && !is_asked)
    ask(QueryKind::Stacks, seated_peers(state_));
}

void RoundTurn::judge_hang(StackAnswers& stacks, const std::string& evidence) {
  state_.look_at.reset();
  const Suspects suspects = std::exchange(state_.suspects, {});
  if (suspects.empty() || state_.phase != RoundPhase::Running) return;
  const HangVerdict verdict = stacks.judge(suspects.ranks(), state_.begun_by_all);
  state_.begun_by_all = verdict.begun_by_all;
  if (verdict.culprits.empty())
    return log(LogLevel::Info, "not taken for a hang: " + verdict.words);
  suspects.add_hung(verdict, stacks.text(), {state_.round, now_}, state_.failures);
  const Failure& first = state_.failures.first();
  const std::string cause = "rank " + std::to_string(first.rank) + " on " +
                            name_of(first.node_rank) + " " + to_string(first.status);
  send_all(HangFound{state_.round, cause, evidence});
  stop_round(cause, true);
}

// Before a new world: ends the query about the old one, and drops its suspects.
void RoundTurn::forget_suspects() {
  state_.suspects.clear();
  state_.look_at.reset();
  state_.begun_by_all.reset();
  OpenQuery* const query = state_.queries.shared(QueryKind::Stacks);
  if (query == nullptr) return;
  query->answer_by = now_;
  conclude_queries();
}

// --- Records: excluded and lost agents, for a later coordinator and from an earlier one

namespace {

// A Remember is sent to all members. When many nodes are lost together, their connections end one
// by one: the first loss is sent at once, and all others within this interval in one message.
constexpr Milliseconds kRecordInterval{100};

}  // namespace

// Does nothing unless another coordinator can take over.
void RoundTurn::record(const AgentId& id) {
  if (state_.spec.term == 0) return;
  const NodeRecord changed = record_of(state_, id);
  note_record(state_.records, changed);
  note_record(state_.untold, changed);
}

void RoundTurn::send_records() {
  if (state_.untold.empty()) return;
  actions_.emplace_back(SendAll{all_peers(state_), Remember{std::exchange(state_.untold, {})}});
  state_.tell_from = now_ + kRecordInterval;
}

// Sends one message with all changes of this event.
void RoundTurn::conclude_records() {
  const bool is_over = state_.phase == RoundPhase::Ending || state_.phase == RoundPhase::Over;
  if (now_ >= state_.tell_from && !is_over) send_records();
}

// A later coordinator must count these restarts, too. Spares report no past, so the members get the
// number.
void RoundTurn::tell_restarts() {
  if (state_.spec.term != 0) send_all(Remember{{}, static_cast<int>(state_.restarts.size())});
}

void RoundTurn::tell_records(Peer peer) {
  if (state_.spec.term != 0 && !state_.records.empty()) send(peer, Remember{state_.records});
}

// A node that was admitted before the members reported that it had been excluded is removed.
void RoundTurn::hear_of_past(const Past& past) {
  for (const AgentId& id : inherit(state_, past, now_)) turn_out(id);
}

void RoundTurn::turn_out(const AgentId& id) {
  const auto known = state_.known.find(id);
  if (known == state_.known.end() || !known->second.peer) return;
  const Peer peer = *known->second.peer;
  const Error error = with_context(*exclusion_objection(state_.exclusions, id),
                                   state_.spec.endpoint + " sends it away");
  const auto seat = state_.node_of.find(peer);
  const bool is_waiting = state_.line.contains(peer);
  if (seat == state_.node_of.end() && !is_waiting) return;
  log(LogLevel::Warning, id.first + ": " + error.message);
  send(peer, Finish{outcome_of(state_, NotRun{error}, now_)});
  // If it is the coordinator's own agent, it gives up the lead, and the others elect another one.
  if (is_waiting ? state_.line.at(peer).hello.is_coordinator
                 : node_at(seat->second).hello.is_coordinator)
    return;
  is_waiting ? drop_waiter(peer, "it was left out of this job")
             : drop_member(seat->second, "it was left out of this job");
}

// --- Worlds: start, stop, restart, end

using Presence = RoundNode::Presence;

void RoundTurn::begin_world() {
  send_records();  // first: the actions below may be held back (round_fence.h)
  assign_ranks(state_);
  state_.phase = RoundPhase::Running;
  if (!state_.failures.empty()) state_.last_failure = brief(state_.failures.first());
  state_.failures = FailureList();
  state_.made_progress = false;
  state_.round_began = now_;
  state_.round = state_.next_round++;
  state_.has_begun = true;
  if (state_.is_checked) state_.slow_ranks.begin_round(state_.round, speed_nodes(state_));
  if (!state_.first_world) state_.first_world = now_;
  state_.pending_count = state_.present_count;
  actions_.emplace_back(ClearStore{});
  log(LogLevel::Debug, "world complete round=" + std::to_string(state_.round) +
                           " nodes=" + std::to_string(state_.nodes.size()) +
                           " workers=" + std::to_string(state_.world_size));
  actions_.reserve(actions_.size() + state_.nodes.size());
  for (int node = 0; node < static_cast<int>(state_.nodes.size()); ++node) {
    node_at(node).is_done = false;
    node_at(node).has_returned = false;
    node_at(node).unusable.clear();
    send(node_at(node).peer, WorldReady{world_of(state_, node)});
  }
}

// Whether `round` is the current round. A future round is a protocol error: drops the member.
bool RoundTurn::is_current(int node, int round) {
  const bool has_world =
      state_.phase == RoundPhase::Running || state_.phase == RoundPhase::Stopping;
  if (has_world && round == state_.round) return true;
  if (!state_.first_world || round > state_.round)
    drop_member(node, "it spoke of round " + std::to_string(round) + " in round " +
                          std::to_string(state_.round));
  return false;
}

// Returns false, and drops the node, if the failure's rank is not one of this node.
bool RoundTurn::add_failure(int node, const AgedFailure& aged) {
  const RoundNode& self = node_at(node);
  const int local_rank = aged.failure.rank - self.base_rank;
  if (local_rank < 0 || local_rank >= self.hello.local_world_size)
    return drop_member(node, kBrokeProtocol), false;
  Failure failure = aged.failure;
  failure.node_rank = node;
  failure.round = state_.round;
  const auto age = std::min<Time::duration>(aged.age, now_ - state_.round_began);
  state_.failures.add(std::move(failure), now_ - age);
  return true;
}

void RoundTurn::receive(int node, const Failed& failed) {
  if (!is_current(node, failed.round) || !add_failure(node, failed.first)) return;
  if (state_.phase != RoundPhase::Running) return;
  const Failure& failure = state_.failures.first();
  stop_round("rank " + std::to_string(failure.rank) + " on " + name_of(node) +
                 " failed: " + to_string(failure.status),
             true);
}

void RoundTurn::receive(int node, const AllReturned& returned) {
  if (!is_current(node, returned.round)) return;
  node_at(node).has_returned = true;
  if (state_.phase != RoundPhase::Running) return;
  mark_done(node);
  if (state_.pending_count > 0) return;
  if (state_.is_checked) return finish(Succeeded{});
  stop_round("the preflight check is done", false);
}

void RoundTurn::receive(int node, const Stopped& stopped) {
  if (!is_current(node, stopped.round)) return;
  if (state_.phase == RoundPhase::Running && stopped.failures.empty())
    return drop_member(node, "it stopped without a request");
  for (const AgedFailure& aged : stopped.failures) {
    if (!add_failure(node, aged)) return;
  }
  state_.failures.add_left_out(stopped.left_out);
  node_at(node).unusable = stopped.unusable;
  note_progress(stopped.progress);
  if (state_.phase == RoundPhase::Running)
    stop_round("workers on " + name_of(node) + " failed", true);
  mark_done(node);
  if (node_at(node).leave_signal && !node_at(node).hello.is_coordinator) dismiss(node);
  conclude_if_stopped();
}

// Ignores a fault of a round that is over or is being stopped. It is injected in the next round.
void RoundTurn::receive(int node, const FaultInjected& told) {
  if (!is_current(node, told.fault.round) || state_.phase != RoundPhase::Running) return;
  if (state_.faults_told++ >= kMostFaultsTold) return;
  FaultInjected message = told;
  message.fault.node_rank = node;
  send_all(std::move(message));
}

void RoundTurn::receive(int node, const TimesReport& told) {
  node_at(node).times = told.times;
  node_at(node).times_at = now_;
}

void RoundTurn::receive(int node, const SpeedReport& told) {
  if (!is_current(node, told.round) || state_.phase != RoundPhase::Running) return;
  for (SlowRank& slow : state_.slow_ranks.take(node, told.speed))
    send_all(SlowFound{std::move(slow)});
  replace_slow();
}

void RoundTurn::replace_slow() {
  if (!is_elastic() || !state_.spec.elastic->exclude_slow) return;
  if (state_.slow_replaced_at && now_ - *state_.slow_replaced_at < kBetweenReplacements) return;
  // A world in which workers have returned 0 is about to end.
  if (state_.pending_count < static_cast<int>(state_.nodes.size())) return;
  for (const auto& [node, slow] : state_.slow_ranks.slow_nodes()) {
    if (!can_be_replaced(node)) continue;
    state_.slow_replaced_at = now_;
    const std::string reason = (slow.rank ? "its rank " + std::to_string(*slow.rank) : "it") +
                               " is " + std::to_string(slow.percent) +
                               " % slower than the others: " + slow.evidence;
    node_at(node).slow = reason + " (--exclude-slow)";
    return stop_round("a standby node replaces " + name_of(node) + ": " + reason, false);
  }
}

// Whether a world of the same size can run without the node.
bool RoundTurn::can_be_replaced(int node) const {
  return can_do_without(node) && !node_at(node).leave_signal &&
         nodes_without(state_, node, now_) >= state_.present_count;
}

void RoundTurn::receive(int node, const Signaled& signaled) {
  if (is_elastic() && can_leave(node)) return let_go(node, signaled.signal);
  const std::string cause = name_of(node) + " was sent " + signal_name(signaled.signal);
  end_with(Interrupted{signaled.signal, node, node_at(node).hello.host}, cause);
}

void RoundTurn::mark_done(int node) {
  if (std::exchange(node_at(node).is_done, true)) return;
  --state_.pending_count;
}

void RoundTurn::stop_round(std::string cause, bool is_failure, std::optional<StopNotice> notice) {
  state_.phase = RoundPhase::Stopping;
  state_.is_failure = is_failure;
  state_.pending_count = 0;
  for (RoundNode& node : state_.nodes) {
    node.is_done = node.presence != Presence::Present;
    if (!node.is_done) ++state_.pending_count;
  }
  log(LogLevel::Debug, "stopping round=" + std::to_string(state_.round) + ": " + cause);
  send_all(Stop{state_.round, std::move(cause), notice});
}

// Why drun does not restart after the round's failure; nullopt if it does.
std::optional<std::string> RoundTurn::no_restart() const {
  if (state_.failures.empty()) return std::nullopt;
  const RestartPolicy& policy = state_.spec.restart;
  const auto objection =
      restart_objection(policy, state_.spec.max_restarts, restarts_of_budget(state_),
                        state_.failures.first().status, now_, fault_of_round());
  return objection ? objection : streak_objection(policy, streak_with_this_round());
}

RoundFault RoundTurn::fault_of_round() const {
  const RestartPolicy& policy = state_.spec.restart;
  if (policy.diagnose == nullptr || !needs_fault(policy)) return {};
  const FailureList::Entry& first = state_.failures.entries().front();
  return policy.diagnose(
      outcome_of(state_, WorkersFailed{state_.failures.failures()}, now_),
      std::chrono::duration_cast<Milliseconds>(first.moment - state_.round_began));
}

FailureStreak RoundTurn::streak_with_this_round() const {
  const FailureList::Entry& first = state_.failures.entries().front();
  return next_streak(
      state_.streak, state_.spec.restart,
      {.failure = first.failure,
       .ran_for = std::chrono::duration_cast<Milliseconds>(first.moment - state_.round_began),
       .made_progress = state_.made_progress});
}

void RoundTurn::note_progress(const WorkProgress& progress) {
  const bool is_further =
      progress.step && (!state_.highest_step || *progress.step > *state_.highest_step);
  if (is_further) state_.highest_step = progress.step;
  if (!is_further && !progress.has_more) return;
  state_.made_progress = true;
  state_.restarts_at_progress = state_.restarts.size();
}

// Ends the job with `ending`, unless it is already ending for another reason.
void RoundTurn::end_with(Ending ending, std::string cause, std::optional<StopNotice> notice) {
  switch (state_.phase) {
    case RoundPhase::Joining:
    case RoundPhase::Pausing:
      return finish(std::move(ending));
    case RoundPhase::Running:
      state_.ending = std::move(ending);
      stop_round(std::move(cause), false, notice);
      return conclude_if_stopped();
    case RoundPhase::Stopping:
      if (!state_.ending && !ends_by_failure()) state_.ending = std::move(ending);
      return conclude_if_stopped();
    case RoundPhase::Ending:
    case RoundPhase::Over:
      return;
  }
}

// The job's deadline is near: the workers get a signal and time to save their state, and the job
// ends.
void RoundTurn::preempt() {
  const JobDeadline deadline = *std::exchange(state_.deadline, std::nullopt);
  if (state_.phase == RoundPhase::Ending || state_.phase == RoundPhase::Over) return;
  log(LogLevel::Warning, "the job is being preempted: " + deadline.reason + "; workers get " +
                             signal_name(deadline.signal));
  const Milliseconds time = std::chrono::duration_cast<Milliseconds>(
      std::max(deadline.stop_at - now_, Time::duration::zero()));
  end_with(Preempted{deadline.reason}, deadline.reason, StopNotice{deadline.signal, time});
}

void RoundTurn::conclude_if_stopped() {
  if (state_.phase != RoundPhase::Stopping || state_.pending_count > 0) return;
  if (state_.ending) return finish(*std::exchange(state_.ending, std::nullopt));
  if (state_.is_failure && ends_by_failure()) return restart();
  // The round was stopped for a new node at the moment when all workers had returned 0.
  const bool is_success =
      state_.failures.empty() && std::all_of(state_.nodes.begin(), state_.nodes.end(),
                                             [](const auto& node) { return node.has_returned; });
  if (is_success && state_.is_checked) return finish(Succeeded{});
  if (!leave_out_unusable()) return;
  if (state_.is_failure) return restart();
  if (is_success) state_.is_checked = true;
  next_world();
}

// Called before another round. Returns false if the job has ended instead.
bool RoundTurn::leave_out_unusable() {
  for (int node = 0; node < static_cast<int>(state_.nodes.size()); ++node) {
    RoundNode& self = node_at(node);
    if (self.unusable.empty() && !self.slow.empty() && can_be_replaced(node))
      self.unusable = self.slow;
    if (self.presence != Presence::Present || self.unusable.empty()) continue;
    if (self.leave_signal) continue;  // leaves anyway
    NodeLost lost{node, self.hello.host, is_elastic() && self.hello.is_coordinator, self.unusable};
    if (!state_.failures.empty()) {
      const Failure& failure = state_.failures.first();
      lost.reason += "; before that, rank " + std::to_string(failure.rank) +
                     " failed: " + to_string(failure.status);
    }
    if (!is_elastic() || self.hello.is_coordinator) return finish(std::move(lost)), false;
    leave_out_node(node, self.unusable, lost);
    state_.last_loss = std::move(lost);  // leave_out_node() cleared it
  }
  return true;
}

void RoundTurn::restart() {
  if (!state_.is_checked) return check_failed();
  const Failure& failure = state_.failures.first();
  const std::string cause =
      "rank " + std::to_string(failure.rank) + " failed: " + to_string(failure.status);
  if (const auto objection = no_restart()) {
    if (state_.spec.max_restarts > 0)
      log(LogLevel::Warning, "no restart: " + *objection + "; " + cause);
    return finish(WorkersFailed{state_.failures.failures()});
  }
  const RestartPolicy& policy = state_.spec.restart;
  state_.streak = streak_with_this_round();
  state_.restarts.push_back(now_);
  const int number = static_cast<int>(state_.restarts.size());
  const int counted = restarts_counted(policy, restarts_of_budget(state_), now_);
  const Milliseconds pause =
      std::max(pause_before(policy, counted),
               pause_after(policy, state_.streak,
                           std::hash<std::string>()(state_.spec.run_id + std::to_string(number))));
  log(LogLevel::Warning,
      "restart " + std::to_string(number) +
          (policy.per_progress ? ", " + std::to_string(counted) : "") + " of at most " +
          std::to_string(state_.spec.max_restarts) +
          (policy.per_progress ? " since the last progress" : "") +
          (policy.window.count() > 0 ? " within " + duration_text(policy.window) : "") +
          (pause.count() > 0 ? ", in " + duration_text(pause) : "") + ": " + cause);
  if (is_elastic()) leave_out_culprit();
  tell_restarts();
  if (pause.count() == 0 || leaving_coordinator()) return next_world();
  state_.phase = RoundPhase::Pausing;
  state_.resume_at = now_ + pause;
}

// A fixed world needs every node; an elastic one also counts the nodes that wait to join.
bool RoundTurn::can_do_without(int node) const {
  return is_elastic() && !node_at(node).hello.is_coordinator &&
         nodes_without(state_, node, now_) >= state_.spec.elastic->min_nodes;
}

std::span<const Time> restarts_of_budget(const RoundState& state) {
  const std::span<const Time> all = state.restarts;
  if (!state.spec.restart.per_progress) return all;
  return all.subspan(std::min(state.restarts_at_progress, all.size()));
}

void RoundTurn::check_failed() {
  const std::vector<Failure> failures = state_.failures.failures();
  for (const Failure& failure : failures) {
    if (!can_do_without(failure.node_rank)) return finish(WorkersFailed{failures});
    leave_out_node(failure.node_rank, "the preflight check found a problem with it",
                   WorkersFailed{failures});
  }
  next_world();
}

// Whether the failure that stops this round ends the job, as far as is known.
bool RoundTurn::ends_by_failure() const {
  if (!state_.is_failure) return false;
  if (state_.is_checked) return no_restart().has_value();
  return !can_do_without(state_.failures.first().node_rank);
}

void RoundTurn::next_world() {
  forget_suspects();
  if (!is_elastic()) return begin_world();
  if (const std::optional<int> host = leaving_coordinator()) {
    dismiss(*host);
    return step_down();
  }
  leave_seats(state_);
  state_.phase = RoundPhase::Joining;
  state_.opened = now_;
  form_world(true);
}

void RoundTurn::finish(Ending ending) {
  const Outcome outcome = outcome_of(state_, std::move(ending), now_);
  state_.phase = RoundPhase::Ending;
  state_.end_by = now_ + state_.spec.heartbeat_timeout;
  send_all(Finish{outcome});
  over_if_alone();
}

void RoundTurn::node_left(int node, const std::string& reason) {
  if (is_elastic()) return lose_seat(node, reason);
  RoundNode& self = node_at(node);
  const std::string name = name_of(node);
  state_.node_of.erase(self.peer);
  --state_.present_count;
  if (state_.phase == RoundPhase::Joining) {
    log(LogLevel::Warning, name + " left before the world was complete: " + reason);
    state_.world_size -= self.hello.local_world_size;
    self = RoundNode();
    return;
  }
  self.presence = Presence::Lost;
  if (state_.phase == RoundPhase::Ending) return over_if_alone();
  log(LogLevel::Error, "lost " + name + ": " + reason);
  if (state_.phase == RoundPhase::Stopping) mark_done(node);
  end_with(NodeLost{node, self.hello.host, false, reason}, "lost " + name + ": " + reason);
}

}  // namespace drun::rendezvous
