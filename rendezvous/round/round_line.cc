// Elastic worlds: who waits, who steps in, who goes.
#include <utility>

#include "rendezvous/round/assembly.h"
#include "rendezvous/round/elastic.h"
#include "rendezvous/round/inheritance.h"
#include "rendezvous/round/roll_call.h"
#include "rendezvous/round/round_turn.h"

namespace drun::rendezvous {

namespace {

using Presence = RoundNode::Presence;

// The number it had in the last world.
std::optional<int> rank_of(const RoundState& state, const AgentId& id) {
  const auto known = state.known.find(id);
  return known == state.known.end() ? std::nullopt : known->second.rank;
}

}  // namespace

// True: whether the newcomer is admitted depends on the agent that holds its identity.
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

// The first one takes the place of the agent that is gone; the others then claim its identity.
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
      drop_member(seat->second, "its agent has come back on a new connection");
    else
      drop(*before);
  }
  if (state_.phase == RoundPhase::Joining) return form_world(false);
  if (state_.phase == RoundPhase::Running && state_.line.contains(peer))
    send(peer, elastic_roll(state_, true, now_));
}

void RoundTurn::waiter_said(Peer peer, const MemberMessage& message) {
  if (std::holds_alternative<Ping>(message)) return send(peer, Pong{});
  if (const auto* told = std::get_if<NodeTold>(&message)) return node_told(peer, *told);
  if (const auto* reply = std::get_if<LivenessReply>(&message))
    return refuse_claimants(peer, reply->check);
  if (const auto* asked = std::get_if<CensusAsked>(&message))
    return census_asked(peer, asked->question);
  if (const auto* signalled = std::get_if<Signalled>(&message)) {
    const Candidate waiter = state_.line.at(peer);
    const Hello& hello = waiter.hello;
    const Interrupted ending{signalled->signal, rank_of(state_, waiter.id), hello.host};
    if (state_.phase == RoundPhase::Ending) return;
    if (hello.is_host && !state_.has_successor)
      return end_with(ending, hello.host + " was sent a signal");
    send(peer, Finish{outcome_of(state_, ending, now_)});
    drop(peer);
    if (hello.is_host) {
      leave_line(state_, peer);
      return step_down();
    }
    return waiter_left(peer, "it was sent " + signal_name(signalled->signal));
  }
  // Of a round that it was in before it came back into line.
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
  // One that was elected a moment ago may just have asked its own agent for too long: it comes
  // back.
  if (candidate.hello.is_host && state_.spec.term == 0)
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
  // The coordinator's own agent is in the same process: it does not come back.
  if (self.hello.is_host) return end_with(NodeLost{node, self.hello.host, true, reason}, cause);
  // Its work was done: nobody needs it any more.
  if (state_.phase == RoundPhase::Running && self.is_done) return;
  if (state_.phase == RoundPhase::Running) stop_round(cause, false);
  conclude_if_stopped();
}

bool RoundTurn::can_leave(int node) const {
  const bool is_between = state_.phase == RoundPhase::Running ||
                          state_.phase == RoundPhase::Stopping ||
                          state_.phase == RoundPhase::Pausing;
  return is_between && !state_.ending && (!node_at(node).hello.is_host || state_.has_successor) &&
         nodes_without(state_, node, now_) >= state_.spec.elastic->min_nodes;
}

void RoundTurn::let_go(int node, int signal) {
  RoundNode& self = node_at(node);
  if (self.leave_signal) return;
  self.leave_signal = signal;
  const bool is_host = self.hello.is_host;
  const std::string cause = name_of(node) + " leaves: it was sent " + signal_name(signal) +
                            (is_host ? "; another node is to coordinate the job" : "");
  log(LogLevel::Info, cause);
  if (is_host && state_.phase == RoundPhase::Pausing) return next_world();
  const bool is_idle = state_.phase == RoundPhase::Pausing || self.is_done;
  if (is_idle && !is_host) return dismiss(node);
  if (state_.phase == RoundPhase::Running) stop_round(cause, false);
}

// It has stopped, and gets the end of the job that is its own.
void RoundTurn::dismiss(int node) {
  const RoundNode& self = node_at(node);
  const std::string reason = "it was sent " + signal_name(*self.leave_signal);
  state_.last_loss = NodeLost{node, self.hello.host, false, reason};
  vacate(node, Interrupted{*self.leave_signal, node, self.hello.host});
}

std::optional<int> RoundTurn::leaving_host() const {
  for (std::size_t i = 0; i < state_.nodes.size(); ++i) {
    if (state_.nodes[i].hello.is_host && state_.nodes[i].leave_signal) return static_cast<int>(i);
  }
  return std::nullopt;
}

// Nothing runs any more: all the others go to look for who coordinates now.
void RoundTurn::step_down() {
  send_records();
  for (const RoundNode& node : state_.nodes) {
    if (node.presence == Presence::Present) drop(node.peer);
  }
  for (const auto& [peer, candidate] : state_.line) drop(peer);
  drop_claimants();
  for (const auto& [peer, stranger] : state_.strangers) drop(peer);
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

// All have stopped, and another round follows: without the node that was the first to fail, if it
// was so too often.
void RoundTurn::leave_out_culprit() {
  const int most = state_.spec.elastic->exclude_after;
  const int node = state_.failures.first().node_rank;
  const RoundNode& self = node_at(node);
  const int failures = count_failure(state_.exclusions, self.id);
  if (most == 0 || failures < most) return;
  const std::string reason = left_out_reason(failures, most);
  if (self.hello.is_host)
    return log(LogLevel::Warning,
               name_of(node) + " is not left out, as the others have joined it: " + reason);
  leave_out_node(node, reason, WorkersFailed{state_.failures.failures()});
}

// `ending` is what the node itself is told.
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
  std::vector<Peer> back;  // it was lost meanwhile, and has come back
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

// The next world, if there are enough nodes for it; after a last call if they have been waited for.
void RoundTurn::form_world(bool is_at_once) {
  is_at_once = is_at_once || has_survivors(state_);
  const int in_line = static_cast<int>(state_.line.size());
  // Not for every hello is it worth a look at all of them.
  const bool is_last_call = state_.last_call && now_ < *state_.last_call && !is_at_once &&
                            in_line < state_.spec.node_count;
  if (is_last_call && in_line >= state_.spec.elastic->min_nodes) return;
  const std::vector<Peer> peers =
      in_line < state_.spec.elastic->min_nodes ? std::vector<Peer>() : next_nodes(state_, now_);
  const int count = static_cast<int>(peers.size());
  if (count < state_.spec.elastic->min_nodes) {
    state_.last_call.reset();
    if (is_at_once) state_.next_roll_call = now_;  // everybody hears at once why nothing runs
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

// Too few for too long.
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

}  // namespace drun::rendezvous
