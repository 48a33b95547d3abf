#include "rendezvous/coordinator/round.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/coordinator/membership.h"
#include "rendezvous/coordinator/node_line.h"
#include "rendezvous/coordinator/round_lifecycle.h"
#include "rendezvous/coordinator/takeover.h"

namespace drun::rendezvous {
namespace {

// --- Messages from nodes of the world

// Whether `round` is the current round. A future round is a protocol error: drops the member.
bool is_current(RoundStep& step, int node, int round) {
  const RoundState& state = step.state;
  const bool has_world = state.phase == RoundPhase::Running || state.phase == RoundPhase::Stopping;
  if (has_world && round == state.round) return true;
  if (round > state.round)
    drop_node(
        step, node,
        "it spoke of round " + std::to_string(round) + " in round " + std::to_string(state.round));
  return false;
}

// Returns false, and drops the node, if the failure's rank is not one of this node.
bool add_failure(RoundStep& step, int node, const AgedFailure& aged) {
  RoundState& state = step.state;
  const RoundNode& self = node_at(state, node);
  const int local_rank = aged.failure.rank - self.base_rank;
  if (local_rank < 0 || local_rank >= self.hello.local_world_size)
    return drop_node(step, node, kBrokeProtocol), false;
  Failure failure = aged.failure;
  failure.node_rank = node;
  failure.round = state.round;
  const auto age = std::min<Time::duration>(aged.age, step.now - state.round_began);
  state.failures.add(std::move(failure), step.now - age);
  return true;
}

void receive(RoundStep& step, int node, const Hello&) { drop_node(step, node, "a second hello"); }
void receive(RoundStep& step, int node, const Ballot&) { drop_node(step, node, kBrokeProtocol); }
void receive(RoundStep&, int, const Lines&) {}  // handled by LogCollector
void receive(RoundStep& step, int node, const Ping&) {
  step.send(node_at(step.state, node).peer, Pong{});
}
void receive(RoundStep& step, int node, const LivenessReply& reply) {
  refuse_claimants(step, node_at(step.state, node).peer, reply.check);
}
void receive(RoundStep& step, int node, const Query& query) {
  receive_query(step, node_at(step.state, node).peer, query);
}
void receive(RoundStep& step, int node, const NodeAnswer& given) {
  if (!receive_answer(step, node_at(step.state, node).peer, given))
    drop_node(step, node, kBrokeProtocol);
}
void receive(RoundStep& step, int node, const TimesReport& told) {
  node_at(step.state, node).times = told.times;
  node_at(step.state, node).times_at = step.now;
}

void receive(RoundStep& step, int node, const Failed& failed) {
  RoundState& state = step.state;
  if (!is_current(step, node, failed.round) || !add_failure(step, node, failed.first)) return;
  if (state.phase != RoundPhase::Running) return;
  const Failure& failure = state.failures.first();
  stop_failed_round(step, "rank " + std::to_string(failure.rank) + " on " + name_of(state, node) +
                              " failed: " + to_string(failure.status));
}

void receive(RoundStep& step, int node, const AllReturned& returned) {
  RoundState& state = step.state;
  if (!is_current(step, node, returned.round)) return;
  node_at(state, node).has_returned = true;
  if (state.phase != RoundPhase::Running) return;
  mark_done(state, node);
  if (state.pending_count > 0) return;
  if (state.is_checked) return finish(step, Succeeded{});
  stop_round(step, "the preflight check is done");
}

void receive(RoundStep& step, int node, const Stopped& stopped) {
  RoundState& state = step.state;
  if (!is_current(step, node, stopped.round)) return;
  if (state.phase == RoundPhase::Running && stopped.failures.empty())
    return drop_node(step, node, "it stopped without a request");
  for (const AgedFailure& aged : stopped.failures) {
    if (!add_failure(step, node, aged)) return;
  }
  state.failures.add_left_out(stopped.left_out);
  RoundNode& self = node_at(state, node);
  self.unusable = stopped.unusable;
  note_progress(state, stopped.progress);
  if (state.phase == RoundPhase::Running)
    stop_failed_round(step, "workers on " + name_of(state, node) + " failed");
  mark_done(state, node);
  if (self.leave_signal && !self.hello.is_coordinator) dismiss(step, node);
  conclude_if_stopped(step);
}

void receive(RoundStep& step, int node, const Signaled& signaled) {
  const RoundState& state = step.state;
  if (can_leave(state, node, step.now)) return let_go(step, node, signaled.signal);
  const std::string cause = name_of(state, node) + " was sent " + signal_name(signaled.signal);
  end_with(step, Interrupted{signaled.signal, node, node_at(state, node).hello.host}, cause);
}

// Ignores a fault of a round that is over or is being stopped. It is injected in the next round.
void receive(RoundStep& step, int node, const FaultInjected& told) {
  RoundState& state = step.state;
  if (!is_current(step, node, told.fault.round) || state.phase != RoundPhase::Running) return;
  if (state.faults_told++ >= kMostFaultsTold) return;
  FaultInjected message = told;
  message.fault.node_rank = node;
  step.send_all(std::move(message));
}

void receive(RoundStep& step, int node, const SpeedReport& told) {
  RoundState& state = step.state;
  if (!is_current(step, node, told.round) || state.phase != RoundPhase::Running) return;
  for (SlowRank& slow : state.slow_ranks.take(node, told.speed))
    step.send_all(SlowFound{std::move(slow)});
  replace_slow(step);
}

// --- Hangs

constexpr Milliseconds kMostSettle{5000};

void receive(RoundStep& step, int node, const HangSuspected& suspected) {
  RoundState& state = step.state;
  if (!is_current(step, node, suspected.round) || state.phase != RoundPhase::Running) return;
  const RoundNode& self = node_at(state, node);
  if (!state.suspects.add({node, self.base_rank, self.hello.local_world_size}, suspected.groups))
    return drop_node(step, node, kBrokeProtocol);
  // An open query is also about these suspects.
  const bool is_asked = state.look_at || state.queries.shared(QueryKind::Stacks) != nullptr;
  if (!state.suspects.empty() && !is_asked)
    state.look_at = step.now + std::min(suspected.settle, kMostSettle);
}

void look_at_suspects(RoundStep& step) {
  RoundState& state = step.state;
  if (!state.look_at || step.now < *state.look_at) return;
  state.look_at.reset();
  const bool is_asked = state.queries.shared(QueryKind::Stacks) != nullptr;
  if (state.phase == RoundPhase::Running && !is_asked) ask_for_stacks(step, seated_peers(state));
}

void judge_hang(RoundStep& step, const EndedQuery& ended) {
  RoundState& state = step.state;
  state.look_at.reset();
  const Suspects suspects = std::exchange(state.suspects, {});
  if (suspects.empty() || state.phase != RoundPhase::Running) return;
  StackAnswers& stacks = *ended.query.stacks;
  const HangVerdict verdict = stacks.judge(suspects.ranks(), state.begun_by_all);
  state.begun_by_all = verdict.begun_by_all;
  if (verdict.culprits.empty())
    return step.log(LogLevel::Info, "not taken for a hang: " + verdict.words);
  suspects.add_hung(verdict, stacks.text(), {state.round, step.now}, state.failures);
  const Failure& first = state.failures.first();
  const std::string cause = "rank " + std::to_string(first.rank) + " on " +
                            name_of(state, first.node_rank) + " " + to_string(first.status);
  step.send_all(HangFound{state.round, cause, ended.result->answer});
  stop_failed_round(step, cause);
}

// --- Events

void handle(RoundStep& step, const PeerArrived& arrived) {
  const auto* hello = std::get_if<Hello>(&arrived.message);
  if (step.state.phase != RoundPhase::Over && hello != nullptr)
    return admit(step, {arrived.peer, *hello, arrived.address});
  step.log(LogLevel::Warning,
           "dropped a connection from " + arrived.address + ": " +
               (hello != nullptr ? "the job is over" : "it did not begin with hello"));
  step.drop(arrived.peer);
}

void handle(RoundStep& step, const PeerSaid& said) {
  RoundState& state = step.state;
  if (const auto waiting = state.line.find(said.peer); waiting != state.line.end()) {
    waiting->second.heard = step.now;
    return receive_from_line(step, said.peer, said.message);
  }
  if (state.contests.has_claimant(said.peer)) return;  // its admission is not decided yet
  const auto found = state.node_of.find(said.peer);
  if (found == state.node_of.end()) return;  // sent before it was dropped
  const int node = found->second;
  node_at(state, node).heard = step.now;
  std::visit([&step, node](const auto& message) { receive(step, node, message); }, said.message);
}

void handle(RoundStep& step, const PeerLeft& left) {
  RoundState& state = step.state;
  lose_answers(state, left.peer, left.reason);
  state.contests.remove_claimant(left.peer);
  const auto seat = state.node_of.find(left.peer);
  if (state.line.contains(left.peer))
    lose_from_line(step, left.peer, left.reason);
  else if (seat != state.node_of.end())
    lose_node(step, seat->second, left.reason);
  else
    return;
  admit_claimants_of(step, left.peer);
}

// For example, its agent was stopped before it joined. Nothing else would end this coordinator.
void handle(RoundStep& step, const CoordinatorEnded&) {
  RoundState& state = step.state;
  if (state.phase == RoundPhase::Ending || state.phase == RoundPhase::Over) return;
  const std::string reason = "the coordinator's agent has ended";
  if (const JoinedNode* host = host_of(state)) {
    const Peer peer = host->peer;
    step.drop(peer);
    handle(step, PeerLeft{peer, reason});
  }
  if (state.phase == RoundPhase::Joining || state.phase == RoundPhase::Pausing)
    finish(step, NodeLost{0, state.spec.master_addr, true, reason});
}

void handle(RoundStep& step, const DeadlineKnown& known) { step.state.deadline = known.deadline; }

// Members that have not read the outcome by now are disconnected.
void drop_all(RoundStep& step) {
  RoundState& state = step.state;
  for (const Peer peer : all_peers(state)) step.drop(peer);
  state.present_count = 0;
  state.line.clear();
  over_if_alone(step);
}

// Absent also if no member is connected: the job's end waits for this host's agent, which is to get
// the outcome.
std::optional<Time> preemption_time(const RoundState& state) {
  if (!state.deadline || !has_members(state)) return std::nullopt;
  return state.deadline->signal_at;
}

void handle(RoundStep& step, const RoundTick&) {
  RoundState& state = step.state;
  settle_contests(step);
  if (const auto at = preemption_time(state); at && step.now >= *at) preempt(step);
  if (state.phase == RoundPhase::Ending && step.now >= state.end_by) return drop_all(step);
  if (step.now >= state.next_sweep) sweep(step);
  look_at_suspects(step);
  if (state.phase == RoundPhase::Pausing && step.now >= state.resume_at) return next_world(step);
  if (state.phase != RoundPhase::Joining) return;
  const Time roll_call = state.next_roll_call;
  form_world(step, LastCall::Wait);
  if (state.phase != RoundPhase::Joining) return;
  // Nothing has changed since the last event, so the next roll call can wait for its interval.
  if (!state.last_call) state.next_roll_call = roll_call;
  if (!state.last_call && step.now >= state.opened + state.spec.join_timeout)
    return waited_too_long(step);
  if (step.now < state.next_roll_call) return;
  state.next_roll_call = step.now + kRollCallInterval;
  step.send_all(roll(state, step.now));
}

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
    case RoundPhase::SteppedDown:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

std::vector<RoundAction> step(RoundState& state, const RoundEvent& event, Time now) {
  RoundStep step{state, now};
  std::visit([&step](const auto& happened) { handle(step, happened); }, event);
  if (const auto stacks = conclude_queries(step)) judge_hang(step, *stacks);
  send_due_records(step);
  return std::move(step.actions);
}

std::optional<Time> deadline(const RoundState& state) {
  std::optional<Time> wanted = phase_deadline(state);
  if (!wanted) return wanted;
  wanted = std::min(*wanted, state.queries.next_deadline().value_or(*wanted));
  wanted = std::min(*wanted, preemption_time(state).value_or(*wanted));
  if (!state.untold.empty() && !tells_the_end(state)) wanted = std::min(*wanted, state.tell_from);
  return std::min(*wanted, state.contests.next_expiry().value_or(*wanted));
}

}  // namespace drun::rendezvous
