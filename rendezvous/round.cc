#include "rendezvous/round.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "rendezvous/admission.h"
#include "rendezvous/assembly.h"
#include "rendezvous/overloaded.h"
#include "rendezvous/roll_call.h"

namespace drun::rendezvous {
namespace {

using Presence = RoundNode::Presence;

constexpr std::chrono::seconds kRollCallInterval{10};
// Connections that have not said hello, beyond one for each node.
constexpr std::size_t kMostStrangers = 1024;
constexpr const char* kBrokeProtocol = "it broke the control protocol";

// One turn: the state, the time, and the actions as they come.
class Turn {
 public:
  Turn(RoundState& state, Time now) : state_(state), now_(now) {}

  void handle(const PeerArrived& arrived);
  void handle(const PeerSaid& said);
  void handle(const PeerLeft& left);
  void handle(const RoundTick&);

  std::vector<RoundAction> take_actions() { return std::move(actions_); }

 private:
  void say(int node, const Hello&) { drop_member(node, "a second hello"); }
  void say(int node, const Failed& failed);
  void say(int node, const AllReturned& returned);
  void say(int node, const Stopped& stopped);
  void say(int node, const Signalled& signalled);
  void say(int node, const Ping&) { send(node_at(node).peer, Pong{}); }

  void greet(Peer peer, const MemberMessage& message);
  void admit(Peer peer, const Hello& hello, const std::string& address);
  void begin_world();
  void stop_round(std::string cause);
  void end_with(Ending ending, std::string cause);
  void conclude_if_stopped();
  void finish(Ending ending);
  void node_left(int node, const std::string& reason);
  void drop_member(int node, const std::string& reason);
  void over_if_alone();
  void sweep();
  bool add_failure(int node, const AgedFailure& aged);
  bool is_current(int node, int round);
  void mark_done(int node);

  RoundNode& node_at(int node) { return state_.nodes[static_cast<std::size_t>(node)]; }
  std::string name_of(int node) { return node_text(node, node_at(node).hello.host); }
  std::vector<Peer> present_peers() const;
  bool may_restart() const { return state_.round < state_.spec.max_restarts; }

  void send(Peer peer, CoordinatorMessage message) {
    actions_.emplace_back(SendTo{peer, std::move(message)});
  }
  void send_all(CoordinatorMessage message) {
    actions_.emplace_back(SendAll{present_peers(), std::move(message)});
  }
  void log(LogLevel level, std::string text) {
    actions_.emplace_back(RoundLog{level, std::move(text)});
  }

  RoundState& state_;
  const Time now_;
  std::vector<RoundAction> actions_;
};

void Turn::handle(const PeerArrived& arrived) {
  const std::size_t most = kMostStrangers + state_.nodes.size();
  if (state_.phase == RoundPhase::Over || state_.strangers.size() >= most) {
    log(LogLevel::Warning, "dropped a connection from " + arrived.address + ": " +
                               (state_.phase == RoundPhase::Over ? std::string("the job is over")
                                                                 : "too many have not said hello"));
    actions_.emplace_back(Drop{arrived.peer});
    return;
  }
  state_.strangers.emplace(arrived.peer, RoundState::Stranger{arrived.address, now_});
}

void Turn::handle(const PeerSaid& said) {
  const auto found = state_.node_of.find(said.peer);
  if (found == state_.node_of.end()) return greet(said.peer, said.message);
  const int node = found->second;
  node_at(node).heard = now_;
  std::visit([this, node](const auto& message) { say(node, message); }, said.message);
}

void Turn::handle(const PeerLeft& left) {
  const auto found = state_.node_of.find(left.peer);
  if (found != state_.node_of.end()) return node_left(found->second, left.reason);
  const auto stranger = state_.strangers.find(left.peer);
  if (stranger == state_.strangers.end()) return;  // dropped by us before
  log(LogLevel::Debug,
      "connection from " + stranger->second.address + " ended before hello: " + left.reason);
  state_.strangers.erase(stranger);
}

void Turn::handle(const RoundTick&) {
  if (state_.phase == RoundPhase::Ending && now_ >= state_.end_by) {
    for (const Peer peer : present_peers()) actions_.emplace_back(Drop{peer});
    state_.present_count = 0;
    return over_if_alone();
  }
  if (now_ >= state_.next_sweep) sweep();
  if (state_.phase != RoundPhase::Joining) return;
  if (now_ >= state_.opened + state_.spec.join_timeout)
    return finish(NotRun{{ErrorCode::Timeout, timeout_text(roll(state_), state_.spec.endpoint,
                                                           state_.spec.join_timeout)}});
  if (now_ < state_.next_roll_call) return;
  state_.next_roll_call = now_ + kRollCallInterval;
  send_all(roll(state_));
}

void Turn::greet(Peer peer, const MemberMessage& message) {
  const auto stranger = state_.strangers.find(peer);
  if (stranger == state_.strangers.end()) return;  // was still on its way when we dropped it
  const std::string address = stranger->second.address;
  state_.strangers.erase(stranger);
  if (const Hello* hello = std::get_if<Hello>(&message)) return admit(peer, *hello, address);
  log(LogLevel::Warning, "dropped " + address + ": it did not begin with hello");
  actions_.emplace_back(Drop{peer});
}

void Turn::admit(Peer peer, const Hello& hello, const std::string& address) {
  const std::string name =
      hello.node_rank ? node_text(*hello.node_rank, hello.host) : "a node on host " + hello.host;
  std::optional<Error> error = objection(state_, hello);
  if (hello.is_probe && (!error || is_own_probe(state_, hello))) {
    send(peer, Refused{{ErrorCode::Closed, "no objection"}});
    actions_.emplace_back(Drop{peer});
    return;
  }
  if (error) {
    log(LogLevel::Warning, "refused " + name + " at " + address + ": " + error->message);
    send(peer, Refused{with_context(*std::move(error), state_.spec.endpoint + " refused " + name)});
    actions_.emplace_back(Drop{peer});
    return;
  }
  RoundNode& node = node_at(*hello.node_rank);
  if (node.presence == Presence::Present) {  // the same member on a new connection
    state_.node_of.erase(node.peer);
    actions_.emplace_back(Drop{node.peer});
    state_.world_size -= node.hello.local_world_size;
  } else {
    ++state_.present_count;
  }
  node = RoundNode{.presence = Presence::Present, .peer = peer, .heard = now_, .hello = hello};
  state_.node_of[peer] = *hello.node_rank;
  state_.world_size += hello.local_world_size;
  send(peer, Welcome{state_.spec.heartbeat_timeout});
  log(LogLevel::Debug, name + " joined from " + address + ": " +
                           std::to_string(state_.present_count) + " of " +
                           std::to_string(state_.spec.node_count) + " nodes");
  if (state_.present_count < state_.spec.node_count) return;
  assign_ranks(state_);
  begin_world();
}

void Turn::begin_world() {
  state_.phase = RoundPhase::Running;
  state_.failures = FailureList();
  state_.round_began = now_;
  if (!state_.first_world) state_.first_world = now_;
  state_.pending_count = state_.present_count;
  actions_.emplace_back(ClearStore{});
  log(LogLevel::Debug, "world complete round=" + std::to_string(state_.round) +
                           " nodes=" + std::to_string(state_.spec.node_count) +
                           " workers=" + std::to_string(state_.world_size));
  actions_.reserve(actions_.size() + state_.nodes.size());
  for (int node = 0; node < state_.spec.node_count; ++node) {
    node_at(node).is_done = false;
    send(node_at(node).peer, WorldReady{world_of(state_, node)});
  }
}

// Whether a message about `round` means this round; a round that has not begun is a lie.
bool Turn::is_current(int node, int round) {
  const bool has_world =
      state_.phase == RoundPhase::Running || state_.phase == RoundPhase::Stopping;
  if (has_world && round == state_.round) return true;
  if (state_.phase == RoundPhase::Joining || round > state_.round)
    drop_member(node, "it spoke of round " + std::to_string(round) + " in round " +
                          std::to_string(state_.round));
  return false;
}

// False: the failure cannot be of this node; the node has been dropped.
bool Turn::add_failure(int node, const AgedFailure& aged) {
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

void Turn::say(int node, const Failed& failed) {
  if (!is_current(node, failed.round) || !add_failure(node, failed.first)) return;
  if (state_.phase != RoundPhase::Running) return;
  const Failure& failure = state_.failures.first();
  stop_round("rank " + std::to_string(failure.rank) + " on " + name_of(node) +
             " failed: " + to_string(failure.status));
}

void Turn::say(int node, const AllReturned& returned) {
  if (!is_current(node, returned.round) || state_.phase != RoundPhase::Running) return;
  mark_done(node);
  if (state_.pending_count == 0) finish(Succeeded{});
}

void Turn::say(int node, const Stopped& stopped) {
  if (!is_current(node, stopped.round)) return;
  if (state_.phase == RoundPhase::Running && stopped.failures.empty())
    return drop_member(node, "it stopped without being told to");
  for (const AgedFailure& aged : stopped.failures) {
    if (!add_failure(node, aged)) return;
  }
  state_.failures.add_left_out(stopped.left_out);
  if (state_.phase == RoundPhase::Running) stop_round("workers on " + name_of(node) + " failed");
  mark_done(node);
  conclude_if_stopped();
}

void Turn::say(int node, const Signalled& signalled) {
  const std::string cause = name_of(node) + " was sent " + signal_name(signalled.signal);
  end_with(Interrupted{signalled.signal, node, node_at(node).hello.host}, cause);
}

void Turn::mark_done(int node) {
  if (std::exchange(node_at(node).is_done, true)) return;
  --state_.pending_count;
}

void Turn::stop_round(std::string cause) {
  state_.phase = RoundPhase::Stopping;
  state_.pending_count = 0;
  for (RoundNode& node : state_.nodes) {
    node.is_done = node.presence != Presence::Present;
    if (!node.is_done) ++state_.pending_count;
  }
  log(LogLevel::Debug, "stopping round=" + std::to_string(state_.round) + ": " + cause);
  send_all(Stop{state_.round, std::move(cause)});
}

// The job ends so, unless it is ending already for another reason.
void Turn::end_with(Ending ending, std::string cause) {
  switch (state_.phase) {
    case RoundPhase::Joining:
      return finish(std::move(ending));
    case RoundPhase::Running:
      state_.ending = std::move(ending);
      stop_round(std::move(cause));
      return conclude_if_stopped();
    case RoundPhase::Stopping:
      if (!state_.ending && may_restart()) state_.ending = std::move(ending);
      return conclude_if_stopped();
    case RoundPhase::Ending:
    case RoundPhase::Over:
      return;
  }
}

void Turn::conclude_if_stopped() {
  if (state_.phase != RoundPhase::Stopping || state_.pending_count > 0) return;
  if (state_.ending) return finish(*std::exchange(state_.ending, std::nullopt));
  if (!may_restart()) return finish(WorkersFailed{state_.failures.failures()});
  ++state_.round;
  log(LogLevel::Warning, "restart " + std::to_string(state_.round) + " of at most " +
                             std::to_string(state_.spec.max_restarts) + ": rank " +
                             std::to_string(state_.failures.first().rank) +
                             " failed: " + to_string(state_.failures.first().status));
  begin_world();
}

void Turn::finish(Ending ending) {
  state_.phase = RoundPhase::Ending;
  state_.end_by = now_ + state_.spec.heartbeat_timeout;
  send_all(Finish{outcome_of(state_, std::move(ending), now_)});
  over_if_alone();
}

void Turn::node_left(int node, const std::string& reason) {
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

void Turn::drop_member(int node, const std::string& reason) {
  actions_.emplace_back(Drop{node_at(node).peer});
  node_left(node, reason);
}

void Turn::over_if_alone() {
  if (state_.present_count > 0) return;
  state_.phase = RoundPhase::Over;
  for (const auto& [peer, stranger] : state_.strangers) actions_.emplace_back(Drop{peer});
  state_.strangers.clear();
  state_.node_of.clear();
  actions_.emplace_back(RoundOver{});
}

// Silence is judged in sweeps, so that a message costs O(1). A sweep that comes late means that
// this process itself was held up (stopped, swapped out): then nobody else is blamed for it.
void Turn::sweep() {
  const Time::duration interval = state_.spec.heartbeat_timeout / 4;
  const bool was_held_up = now_ - state_.next_sweep > interval;
  state_.next_sweep = now_ + interval;
  if (was_held_up) {
    for (RoundNode& node : state_.nodes) node.heard = now_;
    return;
  }
  const Time oldest = now_ - state_.spec.heartbeat_timeout;
  for (int node = 0; node < state_.spec.node_count; ++node) {
    const bool is_silent =
        node_at(node).presence == Presence::Present && node_at(node).heard < oldest;
    if (is_silent)
      drop_member(node, "no sign of life for " + duration_text(state_.spec.heartbeat_timeout));
  }
  while (!state_.strangers.empty() && state_.strangers.begin()->second.since < oldest) {
    log(LogLevel::Warning,
        "dropped " + state_.strangers.begin()->second.address + ": it did not say hello");
    actions_.emplace_back(Drop{state_.strangers.begin()->first});
    state_.strangers.erase(state_.strangers.begin());
  }
}

std::vector<Peer> Turn::present_peers() const {
  std::vector<Peer> peers;
  for (const RoundNode& node : state_.nodes) {
    if (node.presence == Presence::Present) peers.push_back(node.peer);
  }
  return peers;
}

}  // namespace

RoundState open_round(RoundSpec spec, Time now) {
  assert(spec.node_count > 0);
  RoundState state;
  state.nodes.resize(static_cast<std::size_t>(spec.node_count));
  state.spec = std::move(spec);
  state.opened = now;
  state.next_sweep = now + state.spec.heartbeat_timeout / 4;
  state.next_roll_call = now + kRollCallInterval;
  return state;
}

std::vector<RoundAction> step(RoundState& state, const RoundEvent& event, Time now) {
  Turn turn(state, now);
  std::visit([&turn](const auto& happened) { turn.handle(happened); }, event);
  return turn.take_actions();
}

std::optional<Time> deadline(const RoundState& state) {
  switch (state.phase) {
    case RoundPhase::Joining:
      return std::min(
          {state.next_sweep, state.next_roll_call, state.opened + state.spec.join_timeout});
    case RoundPhase::Running:
    case RoundPhase::Stopping:
      return state.next_sweep;
    case RoundPhase::Ending:
      return std::min(state.end_by, state.next_sweep);
    case RoundPhase::Over:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace drun::rendezvous
