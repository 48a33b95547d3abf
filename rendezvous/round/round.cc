#include "rendezvous/round/round.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "rendezvous/round/admission.h"
#include "rendezvous/round/assembly.h"
#include "rendezvous/round/elastic.h"
#include "rendezvous/round/roll_call.h"
#include "rendezvous/round/round_turn.h"

namespace drun::rendezvous {
namespace {

using Presence = RoundNode::Presence;

constexpr std::chrono::seconds kRollCallInterval{10};

// The coordinator's own agent, if it is a member. In a fixed world it is node 0's.
std::optional<Peer> host_peer(const RoundState& state) {
  for (std::size_t i = 0; i < state.nodes.size(); ++i) {
    const RoundNode& node = state.nodes[i];
    const bool is_host = state.spec.elastic ? node.hello.is_host : i == 0;
    if (is_host && node.presence == Presence::Present) return node.peer;
  }
  for (const auto& [peer, candidate] : state.line) {
    if (candidate.hello.is_host) return peer;
  }
  return std::nullopt;
}

// Connections that have not said hello, beyond one for each node.
constexpr std::size_t kMostStrangers = 1024;
// Silence is noticed so much after the heartbeat timeout at most.
constexpr Milliseconds kMostSweepInterval{500};

Time::duration sweep_interval(const RoundState& state) {
  return std::min<Time::duration>(state.spec.heartbeat_timeout / 4, kMostSweepInterval);
}

}  // namespace

void RoundTurn::handle(const PeerArrived& arrived) {
  const std::size_t most = kMostStrangers + static_cast<std::size_t>(state_.spec.node_count);
  if (state_.phase == RoundPhase::Over || state_.strangers.size() >= most) {
    log(LogLevel::Warning, "dropped a connection from " + arrived.address + ": " +
                               (state_.phase == RoundPhase::Over ? std::string("the job is over")
                                                                 : "too many have not said hello"));
    return drop(arrived.peer);
  }
  state_.strangers.emplace(arrived.peer, RoundState::Stranger{arrived.address, now_});
}

void RoundTurn::handle(const PeerSaid& said) {
  if (const auto waiter = state_.line.find(said.peer); waiter != state_.line.end()) {
    waiter->second.heard = now_;
    return waiter_said(said.peer, said.message);
  }
  if (state_.contests.has_claimant(said.peer)) return;  // it has to wait for the answer
  const auto found = state_.node_of.find(said.peer);
  if (found == state_.node_of.end()) return greet(said.peer, said.message);
  const int node = found->second;
  node_at(node).heard = now_;
  std::visit([this, node](const auto& message) { say(node, message); }, said.message);
}

void RoundTurn::handle(const PeerLeft& left) {
  state_.census.missing.erase(left.peer);
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
  const auto stranger = state_.strangers.find(left.peer);
  if (stranger == state_.strangers.end()) return;  // dropped by us before
  log(LogLevel::Debug,
      "connection from " + stranger->second.address + " ended before hello: " + left.reason);
  state_.strangers.erase(stranger);
}

// It was told to stop before it had joined, say: nobody else would end what it has opened.
void RoundTurn::handle(const HostEnded&) {
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
  if (state_.phase == RoundPhase::Ending && now_ >= state_.end_by) return time_is_up();
  if (now_ >= state_.next_sweep) sweep();
  look_tick();
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

// Whoever has not read the outcome by now never will.
void RoundTurn::time_is_up() {
  for (const Peer peer : present_peers()) drop(peer);
  state_.present_count = 0;
  state_.line.clear();
  over_if_alone();
}

void RoundTurn::greet(Peer peer, const MemberMessage& message) {
  const auto stranger = state_.strangers.find(peer);
  if (stranger == state_.strangers.end()) return;  // was still on its way when we dropped it
  const std::string address = stranger->second.address;
  state_.strangers.erase(stranger);
  if (const Hello* hello = std::get_if<Hello>(&message)) return admit(peer, *hello, address);
  log(LogLevel::Warning, "dropped " + address + ": it did not begin with hello");
  drop(peer);
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

// In a world of fixed size: the place is that of its node rank.
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
  drop(node_at(node).peer);
  node_left(node, reason);
}

void RoundTurn::over_if_alone() {
  if (state_.present_count > 0 || !state_.line.empty()) return;
  state_.phase = RoundPhase::Over;
  drop_claimants();
  for (const auto& [peer, stranger] : state_.strangers) drop(peer);
  state_.strangers.clear();
  state_.node_of.clear();
  actions_.emplace_back(RoundOver{});
}

// Silence is judged in sweeps, so that a message costs O(1). A sweep that comes late means that
// this process itself was held up (stopped, swapped out): then nobody else is blamed for it.
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
  while (!state_.strangers.empty() && state_.strangers.begin()->second.since < oldest) {
    log(LogLevel::Warning,
        "dropped " + state_.strangers.begin()->second.address + ": it did not say hello");
    drop(state_.strangers.begin()->first);
    state_.strangers.erase(state_.strangers.begin());
  }
  if (is_elastic()) line_sweep();
}

std::string RoundTurn::name_of(int node) const { return node_text(node, node_at(node).hello.host); }

std::vector<Peer> RoundTurn::present_peers() const {
  std::vector<Peer> peers;
  for (const RoundNode& node : state_.nodes) {
    if (node.presence == Presence::Present) peers.push_back(node.peer);
  }
  const bool is_for_line =
      state_.phase == RoundPhase::Joining || state_.phase == RoundPhase::Ending;
  if (!is_for_line) return peers;
  for (const auto& [peer, candidate] : state_.line) peers.push_back(peer);
  return peers;
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
  turn.conclude_census();
  turn.conclude_records();
  return turn.take_actions();
}

namespace {

std::optional<Time> phase_deadline(const RoundState& state) {
  const std::optional<Time> look = deadline(state.looking);
  switch (state.phase) {
    case RoundPhase::Joining:
      return std::min({state.next_sweep, state.next_roll_call,
                       state.last_call.value_or(state.opened + state.spec.join_timeout)});
    case RoundPhase::Running:
    case RoundPhase::Stopping:
      return std::min(state.next_sweep, look.value_or(state.next_sweep));
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
  if (state.census.is_open) wanted = std::min(*wanted, state.census.answer_by);
  if (!state.untold.empty()) wanted = std::min(*wanted, state.tell_from);
  return std::min(*wanted, state.contests.next_expiry().value_or(*wanted));
}

}  // namespace drun::rendezvous
