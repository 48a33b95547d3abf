// How worlds begin, stop, begin again and end.
#include <algorithm>
#include <utility>

#include "rendezvous/round/assembly.h"
#include "rendezvous/round/elastic.h"
#include "rendezvous/round/roll_call.h"
#include "rendezvous/round/round_turn.h"

namespace drun::rendezvous {

using Presence = RoundNode::Presence;

void RoundTurn::begin_world() {
  end_look();
  send_records();  // before what has to wait until later leaders know of the round
  assign_ranks(state_);
  state_.phase = RoundPhase::Running;
  if (!state_.failures.empty()) state_.last_failure = brief(state_.failures.first());
  state_.failures = FailureList();
  state_.round_began = now_;
  state_.round = state_.next_round++;
  state_.has_begun = true;
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

// Whether a message about `round` means this round; a round that has not begun is a lie.
bool RoundTurn::is_current(int node, int round) {
  const bool has_world =
      state_.phase == RoundPhase::Running || state_.phase == RoundPhase::Stopping;
  if (has_world && round == state_.round) return true;
  if (!state_.first_world || round > state_.round)
    drop_member(node, "it spoke of round " + std::to_string(round) + " in round " +
                          std::to_string(state_.round));
  return false;
}

// False: the failure cannot be of this node; the node has been dropped.
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

void RoundTurn::say(int node, const Failed& failed) {
  if (!is_current(node, failed.round) || !add_failure(node, failed.first)) return;
  if (state_.phase != RoundPhase::Running) return;
  const Failure& failure = state_.failures.first();
  stop_round("rank " + std::to_string(failure.rank) + " on " + name_of(node) +
                 " failed: " + to_string(failure.status),
             true);
}

void RoundTurn::say(int node, const AllReturned& returned) {
  if (!is_current(node, returned.round)) return;
  node_at(node).has_returned = true;
  if (state_.phase != RoundPhase::Running) return;
  mark_done(node);
  if (state_.pending_count > 0) return;
  if (state_.is_checked) return finish(Succeeded{});
  stop_round("the preflight check is done", false);
}

void RoundTurn::say(int node, const Stopped& stopped) {
  if (!is_current(node, stopped.round)) return;
  if (state_.phase == RoundPhase::Running && stopped.failures.empty())
    return drop_member(node, "it stopped without being told to");
  for (const AgedFailure& aged : stopped.failures) {
    if (!add_failure(node, aged)) return;
  }
  state_.failures.add_left_out(stopped.left_out);
  node_at(node).unusable = stopped.unusable;
  if (state_.phase == RoundPhase::Running)
    stop_round("workers on " + name_of(node) + " failed", true);
  mark_done(node);
  if (node_at(node).leave_signal && !node_at(node).hello.is_host) dismiss(node);
  conclude_if_stopped();
}

void RoundTurn::say(int node, const Signalled& signalled) {
  if (is_elastic() && can_leave(node)) return let_go(node, signalled.signal);
  const std::string cause = name_of(node) + " was sent " + signal_name(signalled.signal);
  end_with(Interrupted{signalled.signal, node, node_at(node).hello.host}, cause);
}

void RoundTurn::mark_done(int node) {
  if (std::exchange(node_at(node).is_done, true)) return;
  --state_.pending_count;
}

void RoundTurn::stop_round(std::string cause, bool is_failure) {
  state_.phase = RoundPhase::Stopping;
  state_.is_failure = is_failure;
  state_.pending_count = 0;
  for (RoundNode& node : state_.nodes) {
    node.is_done = node.presence != Presence::Present;
    if (!node.is_done) ++state_.pending_count;
  }
  log(LogLevel::Debug, "stopping round=" + std::to_string(state_.round) + ": " + cause);
  send_all(Stop{state_.round, std::move(cause)});
}

// Why the round's failure is not followed by a restart.
std::optional<std::string> RoundTurn::no_restart() const {
  if (state_.failures.empty()) return std::nullopt;
  return restart_objection(state_.spec.restart, state_.spec.max_restarts, state_.restarts,
                           state_.failures.first().status, now_);
}

// The job ends so, unless it is ending already for another reason.
void RoundTurn::end_with(Ending ending, std::string cause) {
  switch (state_.phase) {
    case RoundPhase::Joining:
    case RoundPhase::Pausing:
      return finish(std::move(ending));
    case RoundPhase::Running:
      state_.ending = std::move(ending);
      stop_round(std::move(cause), false);
      return conclude_if_stopped();
    case RoundPhase::Stopping:
      if (!state_.ending && !ends_by_failure()) state_.ending = std::move(ending);
      return conclude_if_stopped();
    case RoundPhase::Ending:
    case RoundPhase::Over:
      return;
  }
}

void RoundTurn::conclude_if_stopped() {
  if (state_.phase != RoundPhase::Stopping || state_.pending_count > 0) return;
  if (state_.ending) return finish(*std::exchange(state_.ending, std::nullopt));
  if (state_.is_failure && ends_by_failure()) return restart();
  // It was stopped for a newcomer at the very moment when its work was done.
  const bool is_success =
      state_.failures.empty() && std::all_of(state_.nodes.begin(), state_.nodes.end(),
                                             [](const auto& node) { return node.has_returned; });
  if (is_success && state_.is_checked) return finish(Succeeded{});
  if (!leave_out_unusable()) return;
  if (state_.is_failure) return restart();
  if (is_success) state_.is_checked = true;
  next_world();
}

// Another round is about to begin. False: the job has ended instead.
bool RoundTurn::leave_out_unusable() {
  for (int node = 0; node < static_cast<int>(state_.nodes.size()); ++node) {
    const RoundNode& self = node_at(node);
    if (self.presence != Presence::Present || self.unusable.empty()) continue;
    if (self.leave_signal) continue;  // leaves anyway
    NodeLost lost{node, self.hello.host, is_elastic() && self.hello.is_host, self.unusable};
    if (!state_.failures.empty()) {
      const Failure& failure = state_.failures.first();
      lost.reason += "; before that, rank " + std::to_string(failure.rank) +
                     " failed: " + to_string(failure.status);
    }
    if (!is_elastic() || self.hello.is_host) return finish(std::move(lost)), false;
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
  state_.restarts.push_back(now_);
  const int number = static_cast<int>(state_.restarts.size());
  const RestartPolicy& policy = state_.spec.restart;
  const Milliseconds pause = pause_before(policy, restarts_counted(policy, state_.restarts, now_));
  log(LogLevel::Warning,
      "restart " + std::to_string(number) + " of at most " +
          std::to_string(state_.spec.max_restarts) +
          (policy.window.count() > 0 ? " within " + duration_text(policy.window) : "") +
          (pause.count() > 0 ? ", in " + duration_text(pause) : "") + ": " + cause);
  if (is_elastic()) leave_out_culprit();
  tell_restarts();
  if (pause.count() == 0 || leaving_host()) return next_world();
  state_.phase = RoundPhase::Pausing;
  state_.resume_at = now_ + pause;
}

// A fixed world cannot do without a node; an elastic one looks at whoever steps in, too.
bool RoundTurn::can_do_without(int node) const {
  return is_elastic() && !node_at(node).hello.is_host &&
         nodes_without(state_, node, now_) >= state_.spec.elastic->min_nodes;
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

// Whether the failure that stops this round is the end of the job, as far as it is known.
bool RoundTurn::ends_by_failure() const {
  if (!state_.is_failure) return false;
  if (state_.is_checked) return no_restart().has_value();
  return !can_do_without(state_.failures.first().node_rank);
}

void RoundTurn::next_world() {
  if (!is_elastic()) return begin_world();
  if (const std::optional<int> host = leaving_host()) {
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
  look_lost(node, reason);
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
