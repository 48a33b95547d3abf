#include "rendezvous/coordinator/round_lifecycle.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <utility>

#include "rendezvous/base/text.h"
#include "rendezvous/coordinator/node_line.h"
#include "rendezvous/coordinator/takeover.h"
#include "rendezvous/protocol/membership_text.h"

namespace drun::rendezvous {
namespace {

constexpr std::chrono::minutes kBetweenReplacements{10};  // of slow nodes

// --- The world of a round

std::vector<RoleShare> roles_of(const Hello& hello) {
  if (!hello.roles.empty()) return hello.roles;
  return {{.role = hello.role, .workers = hello.local_world_size}};
}

// Base ranks of all nodes, by node rank; role ranks likewise, per role.
void assign_ranks(RoundState& state) {
  int next_rank = 0;
  state.role_sizes.clear();
  for (RoundNode& node : state.nodes) {
    node.base_rank = next_rank;
    next_rank += node.hello.local_world_size;
    node.role_base_ranks.clear();
    for (const RoleShare& share : roles_of(node.hello)) {
      int& role_size = state.role_sizes[share.role];
      node.role_base_ranks.push_back(role_size);
      role_size += share.workers;
    }
  }
  assert(next_rank == state.world_size);
}

// The world as sent to `node`.
World world_of(const RoundState& state, int node) {
  const RoundNode& self = node_at(state, node);
  const std::vector<RoleShare> shares = roles_of(self.hello);
  std::vector<RoleRanks> roles;
  for (std::size_t i = 0; i < self.hello.roles.size(); ++i) {
    roles.push_back({.role = shares[i].role,
                     .workers = shares[i].workers,
                     .base_rank = self.role_base_ranks[i],
                     .world_size = state.role_sizes.at(shares[i].role)});
  }
  return World{.run_id = state.spec.run_id,
               .round = state.round,
               .restarts = static_cast<int>(state.restarts.size()),
               .max_restarts = state.spec.max_restarts,
               .node_rank = node,
               .node_count = static_cast<int>(state.nodes.size()),
               .base_rank = self.base_rank,
               .local_world_size = self.hello.local_world_size,
               .world_size = state.world_size,
               .role = shares.front().role,
               .role_base_rank = self.role_base_ranks.front(),
               .role_world_size = state.role_sizes.at(shares.front().role),
               .roles = std::move(roles),
               .master_addr = state.spec.master_addr,
               .master_port = state.spec.master_port,
               .use_agent_store = state.spec.use_agent_store,
               .is_preflight = !state.is_checked};
}

std::vector<SlowRanks::Node> speed_nodes(const RoundState& state) {
  std::vector<SlowRanks::Node> nodes;
  nodes.reserve(state.nodes.size());
  for (const RoundNode& node : state.nodes)
    nodes.push_back({.host = node.hello.host,
                     .slot = node.hello.slot,
                     .workers = node.hello.local_world_size,
                     .roles = roles_of(node.hello)});
  return nodes;
}

// Whether an earlier coordinator has completed the preflight check.
bool is_checked_before(const RoundState& state) {
  return std::any_of(state.nodes.begin(), state.nodes.end(), [](const RoundNode& node) {
    return node.hello.past && node.hello.past->is_checked;
  });
}

// Requires that the nodes of the world have their seats.
void begin_world(RoundStep& step) {
  RoundState& state = step.state;
  state.is_checked = state.is_checked || is_checked_before(state);
  send_records(step);  // first: the actions below may be held back (RoundFence)
  assign_ranks(state);
  state.phase = RoundPhase::Running;
  if (!state.failures.empty()) state.last_failure = brief(state.failures.first());
  state.failures = FailureList();
  state.made_progress = false;
  state.round_began = step.now;
  state.round = state.next_round++;
  state.has_begun = true;
  if (state.is_checked) state.slow_ranks.begin_round(state.round, speed_nodes(state));
  if (!state.first_world) state.first_world = step.now;
  state.pending_count = state.present_count;
  step.actions.emplace_back(ClearStore{});
  step.log(LogLevel::Debug, "world complete round=" + std::to_string(state.round) +
                                " nodes=" + std::to_string(state.nodes.size()) +
                                " workers=" + std::to_string(state.world_size));
  step.actions.reserve(step.actions.size() + state.nodes.size());
  for (int node = 0; node < static_cast<int>(state.nodes.size()); ++node)
    step.send(node_at(state, node).peer, WorldReady{world_of(state, node)});
}

// Before a new world: ends the query about the old one, and drops its suspects.
void forget_suspects(RoundStep& step) {
  RoundState& state = step.state;
  state.suspects.clear();
  state.look_at.reset();
  state.begun_by_all.reset();
  OpenQuery* const query = state.queries.shared(QueryKind::Stacks);
  if (query == nullptr) return;
  query->answer_by = step.now;
  conclude_queries(step);  // without suspects there is nothing to judge
}

void stop(RoundStep& step, std::string cause, bool is_failure, std::optional<StopNotice> notice) {
  RoundState& state = step.state;
  state.phase = RoundPhase::Stopping;
  state.is_failure = is_failure;
  state.pending_count = 0;
  for (RoundNode& node : state.nodes) {
    node.is_done = node.is_lost;
    if (!node.is_done) ++state.pending_count;
  }
  step.log(LogLevel::Debug, "stopping round=" + std::to_string(state.round) + ": " + cause);
  step.send_all(Stop{state.round, std::move(cause), notice});
}

// --- Restarts

RoundFault fault_of_round(const RoundState& state, Time now) {
  const RestartPolicy& policy = state.spec.restart;
  if (policy.diagnose == nullptr || !needs_fault(policy)) return {};
  const FailureList::Entry& first = state.failures.entries().front();
  return policy.diagnose(
      outcome_of(state, WorkersFailed{state.failures.failures()}, now),
      std::chrono::duration_cast<Milliseconds>(first.moment - state.round_began));
}

FailureStreak streak_with_this_round(const RoundState& state) {
  const FailureList::Entry& first = state.failures.entries().front();
  return next_streak(
      state.streak, state.spec.restart,
      {.failure = first.failure,
       .ran_for = std::chrono::duration_cast<Milliseconds>(first.moment - state.round_began),
       .made_progress = state.made_progress});
}

// Why drun does not restart after the round's failure; nullopt if it does.
std::optional<std::string> no_restart(const RoundState& state, Time now) {
  if (state.failures.empty()) return std::nullopt;
  const RestartPolicy& policy = state.spec.restart;
  const auto objection =
      restart_objection(policy, state.spec.max_restarts, restarts_of_budget(state),
                        state.failures.first().status, now, fault_of_round(state, now));
  return objection ? objection : streak_objection(policy, streak_with_this_round(state));
}

// Whether another world can form without the node, which may be replaced by one in line.
bool can_do_without(const RoundState& state, int node, Time now) {
  return !loss_ends_job(state, node) && nodes_without(state, node, now) >= state.rules.min_nodes;
}

// Whether a world of the same size can run without the node.
bool can_be_replaced(const RoundState& state, int node, Time now) {
  return can_do_without(state, node, now) && !node_at(state, node).leave_signal &&
         nodes_without(state, node, now) >= state.present_count;
}

// Whether the failure that stops this round ends the job, as far as is known.
bool ends_by_failure(const RoundState& state, Time now) {
  if (!state.is_failure) return false;
  if (state.is_checked) return no_restart(state, now).has_value();
  return !can_do_without(state, state.failures.first().node_rank, now);
}

std::string text_of_first(const FailureList& failures) {
  const Failure& failure = failures.first();
  return "rank " + std::to_string(failure.rank) + " failed: " + to_string(failure.status);
}

// --- Nodes that leave the job

std::optional<int> leaving_coordinator(const RoundState& state) {
  for (int node = 0; node < static_cast<int>(state.nodes.size()); ++node) {
    if (node_at(state, node).hello.is_coordinator && node_at(state, node).leave_signal) return node;
  }
  return std::nullopt;
}

// Sends the node its own outcome and frees its seat.
void vacate(RoundStep& step, int node, const Ending& ending) {
  RoundState& state = step.state;
  RoundNode& self = node_at(state, node);
  step.send(self.peer, Finish{outcome_of(state, ending, step.now)});
  step.drop(self.peer);
  note_leaving(state, self);
  state.node_of.erase(self.peer);
  --state.present_count;
  self.is_lost = true;
}

// Excludes a node for good. `ending` is the outcome that the node itself gets.
void leave_out_node(RoundStep& step, int node, std::string reason, const Ending& ending) {
  RoundState& state = step.state;
  const RoundNode& self = node_at(state, node);
  if (is_left_out(state.exclusions, self.id)) return;
  LeftOut told{node, self.hello.host, state.round, std::move(reason)};
  leave_out(state.exclusions, self.id, told);
  record(state, self.id);
  state.last_loss.reset();
  const NodeLeftOut message{std::move(told)};
  step.send_all(message);
  if (!self.is_lost) vacate(step, node, ending);
  std::vector<Peer> back;  // the node's new connections, if it was lost and has reconnected
  for (const auto& [peer, waiting] : state.line) {
    step.send(peer, message);
    if (waiting.id == self.id) back.push_back(peer);
  }
  for (const Peer peer : back) {
    step.send(peer, Finish{outcome_of(state, ending, step.now)});
    step.drop(peer);
    leave_line(state, peer);
  }
}

// Called when all nodes have stopped and another round follows. Excludes the node whose worker was
// the first to fail if that happened too often.
void leave_out_culprit(RoundStep& step) {
  RoundState& state = step.state;
  const int most = state.rules.exclude_after;
  const int node = state.failures.first().node_rank;
  const RoundNode& self = node_at(state, node);
  const int failures = count_failure(state.exclusions, self.id);
  if (most == 0 || failures < most) return;
  const std::string reason = left_out_reason(failures, most);
  if (self.hello.is_coordinator)
    return step.log(
        LogLevel::Warning,
        name_of(state, node) + " is not left out, as the others have joined it: " + reason);
  leave_out_node(step, node, reason, WorkersFailed{state.failures.failures()});
}

// Called before another round. Returns false if the job has ended instead.
bool leave_out_unusable(RoundStep& step) {
  RoundState& state = step.state;
  for (int node = 0; node < static_cast<int>(state.nodes.size()); ++node) {
    RoundNode& self = node_at(state, node);
    if (self.unusable.empty() && !self.slow.empty() && can_be_replaced(state, node, step.now))
      self.unusable = self.slow;
    if (self.is_lost || self.unusable.empty()) continue;
    if (self.leave_signal) continue;  // leaves anyway
    NodeLost lost = node_lost(state, node, self.unusable);
    if (!state.failures.empty()) lost.reason += "; before that, " + text_of_first(state.failures);
    if (loss_ends_job(state, node)) return finish(step, std::move(lost)), false;
    leave_out_node(step, node, self.unusable, lost);
    state.last_loss = std::move(lost);  // leave_out_node() cleared it
  }
  return true;
}

// --- After the round

void check_failed(RoundStep& step) {
  const std::vector<Failure> failures = step.state.failures.failures();
  for (const Failure& failure : failures) {
    if (!can_do_without(step.state, failure.node_rank, step.now))
      return finish(step, WorkersFailed{failures});
    leave_out_node(step, failure.node_rank, "the preflight check found a problem with it",
                   WorkersFailed{failures});
  }
  next_world(step);
}

void restart(RoundStep& step) {
  RoundState& state = step.state;
  if (!state.is_checked) return check_failed(step);
  const std::string cause = text_of_first(state.failures);
  if (const auto objection = no_restart(state, step.now)) {
    if (state.spec.max_restarts > 0)
      step.log(LogLevel::Warning, "no restart: " + *objection + "; " + cause);
    return finish(step, WorkersFailed{state.failures.failures()});
  }
  const RestartPolicy& policy = state.spec.restart;
  const int startup_failures_before = state.streak.startup_failures;
  state.streak = streak_with_this_round(state);
  const bool is_startup_failure = state.streak.startup_failures > startup_failures_before;
  state.restarts.push_back(step.now);
  const int number = static_cast<int>(state.restarts.size());
  const int counted = restarts_counted(policy, restarts_of_budget(state), step.now);
  const std::size_t seed = std::hash<std::string>()(state.spec.run_id + std::to_string(number));
  const Milliseconds startup_pause =
      is_startup_failure ? pause_after(policy, state.streak, seed) : Milliseconds(0);
  const Milliseconds pause = std::max(pause_before(policy, counted), startup_pause);
  step.log(LogLevel::Warning,
           "restart " + std::to_string(number) +
               (policy.per_progress ? ", " + std::to_string(counted) : "") + " of at most " +
               std::to_string(state.spec.max_restarts) +
               (policy.per_progress ? " since the last progress" : "") +
               (policy.window.count() > 0 ? " within " + duration_text(policy.window) : "") +
               (pause.count() > 0 ? ", in " + duration_text(pause) : "") + ": " + cause);
  leave_out_culprit(step);
  tell_restarts(step);
  if (pause.count() == 0 || leaving_coordinator(state)) return next_world(step);
  state.phase = RoundPhase::Pausing;
  state.resume_at = step.now + pause;
}

void drop_claimants(RoundStep& step) {
  for (const auto& claimant : step.state.contests.take_all()) step.drop(claimant.peer);
}

}  // namespace

// --- Begin

void form_world(RoundStep& step, LastCall last_call) {
  RoundState& state = step.state;
  const WorldRules& rules = state.rules;
  const bool is_at_once = last_call == LastCall::Skip || has_survivors(state);
  const int in_line = static_cast<int>(state.line.size());
  // Until the last call ends, a hello does not cause an O(nodes) check.
  const bool is_last_call =
      state.last_call && step.now < *state.last_call && !is_at_once && in_line < rules.max_nodes;
  if (is_last_call && in_line >= rules.min_nodes) return;
  const std::vector<Peer> peers =
      in_line < rules.min_nodes ? std::vector<Peer>() : next_nodes(state, step.now);
  const int count = static_cast<int>(peers.size());
  if (count < rules.min_nodes) {
    state.last_call.reset();
    if (is_at_once) state.next_roll_call = step.now;  // tell all nodes at once why nothing runs
    return;
  }
  if (count < rules.max_nodes && !is_at_once) {
    if (!state.last_call) {
      state.last_call = step.now + last_call_of(state);
      state.next_roll_call = std::min(state.next_roll_call, step.now + std::chrono::seconds(1));
    }
    if (step.now < *state.last_call) return;
  }
  state.last_call.reset();
  take_seats(state, peers);
  begin_world(step);
  for (const auto& [peer, waiting] : state.line) step.send(peer, roll_for_spares(state));
}

void waited_too_long(RoundStep& step) {
  RoundState& state = step.state;
  const Waiting waiting = roll(state, step.now);
  const std::string missing =
      state.rules.pins_ranks
          ? timeout_text(waiting, state.spec.endpoint, state.spec.join_timeout)
          : elastic_timeout_text(waiting, state.spec.endpoint, state.spec.join_timeout);
  const bool failed_before = !state.failures.empty() && !state.exclusions.nodes.empty();
  if (state.first_world && !state.last_loss && failed_before) {
    state.exclusions.nodes.back().told.reason += "; no replacement came: " + missing;
    return finish(step, WorkersFailed{state.failures.failures()});
  }
  if (!state.first_world || !state.last_loss)
    return finish(step, NotRun{{ErrorCode::Timeout, missing}});
  NodeLost lost = *state.last_loss;
  lost.reason += "; no replacement came: " + missing;
  finish(step, lost);
}

// --- Stop

void stop_round(RoundStep& step, std::string cause, std::optional<StopNotice> notice) {
  stop(step, std::move(cause), false, notice);
}

void stop_failed_round(RoundStep& step, std::string cause) {
  stop(step, std::move(cause), true, {});
}

void mark_done(RoundState& state, int node) {
  if (std::exchange(node_at(state, node).is_done, true)) return;
  --state.pending_count;
}

void note_progress(RoundState& state, const WorkProgress& progress) {
  const bool is_further =
      progress.step && (!state.highest_step || *progress.step > *state.highest_step);
  if (is_further) state.highest_step = progress.step;
  if (!is_further && !progress.has_more) return;
  state.made_progress = true;
  state.restarts_at_progress = state.restarts.size();
}

void conclude_if_stopped(RoundStep& step) {
  RoundState& state = step.state;
  if (state.phase != RoundPhase::Stopping || state.pending_count > 0) return;
  const bool is_ended_by_failure = ends_by_failure(state, step.now);
  if (state.ending_otherwise && !is_ended_by_failure)
    return finish(step, *std::exchange(state.ending_otherwise, std::nullopt));
  if (state.ending) return finish(step, *std::exchange(state.ending, std::nullopt));
  if (is_ended_by_failure) return restart(step);
  // The round was stopped for a new node at the moment when all workers had returned 0.
  const bool is_success =
      state.failures.empty() && std::all_of(state.nodes.begin(), state.nodes.end(),
                                            [](const auto& node) { return node.has_returned; });
  if (is_success && state.is_checked) return finish(step, Succeeded{});
  if (!leave_out_unusable(step)) return;
  if (state.is_failure) return restart(step);
  if (is_success) state.is_checked = true;
  next_world(step);
}

void next_world(RoundStep& step) {
  RoundState& state = step.state;
  forget_suspects(step);
  if (const std::optional<int> host = leaving_coordinator(state)) {
    dismiss(step, *host);
    return step_down(step);
  }
  leave_seats(state);
  state.phase = RoundPhase::Joining;
  state.opened = step.now;
  form_world(step, LastCall::Skip);
}

// --- End

void end_with(RoundStep& step, Ending ending, std::string cause, std::optional<StopNotice> notice) {
  RoundState& state = step.state;
  switch (state.phase) {
    case RoundPhase::Joining:
    case RoundPhase::Pausing:
      return finish(step, std::move(ending));
    case RoundPhase::Running:
      state.ending = std::move(ending);
      stop_round(step, std::move(cause), notice);
      return conclude_if_stopped(step);
    case RoundPhase::Stopping: {
      auto& decided = ends_by_failure(state, step.now) ? state.ending_otherwise : state.ending;
      if (!decided) decided = std::move(ending);
      return conclude_if_stopped(step);
    }
    case RoundPhase::Ending:
    case RoundPhase::Over:
    case RoundPhase::SteppedDown:
      return;
  }
}

void finish(RoundStep& step, Ending ending) {
  RoundState& state = step.state;
  const Outcome outcome = outcome_of(state, std::move(ending), step.now);
  state.phase = RoundPhase::Ending;
  state.end_by = step.now + state.spec.heartbeat_timeout;
  step.send_all(Finish{outcome});
  over_if_alone(step);
}

void over_if_alone(RoundStep& step) {
  RoundState& state = step.state;
  if (has_members(state)) return;
  state.phase = RoundPhase::Over;
  drop_claimants(step);
  state.node_of.clear();
  step.actions.emplace_back(RoundOver{});
}

void preempt(RoundStep& step) {
  RoundState& state = step.state;
  const JobDeadline deadline = *std::exchange(state.deadline, std::nullopt);
  if (state.phase == RoundPhase::Ending || state.phase == RoundPhase::Over) return;
  step.log(LogLevel::Warning, "the job is being preempted: " + deadline.reason + "; workers get " +
                                  signal_name(deadline.signal));
  const Milliseconds time = std::chrono::duration_cast<Milliseconds>(
      std::max(deadline.stop_at - step.now, Time::duration::zero()));
  end_with(step, Preempted{deadline.reason}, deadline.reason, StopNotice{deadline.signal, time});
}

void step_down(RoundStep& step) {
  RoundState& state = step.state;
  send_records(step);
  for (const RoundNode& node : state.nodes) {
    if (!node.is_lost) step.drop(node.peer);
  }
  for (const auto& [peer, waiting] : state.line) step.drop(peer);
  drop_claimants(step);
  state = open_round(state.spec, step.now);
  state.phase = RoundPhase::SteppedDown;
  step.actions.emplace_back(StepDown{});
}

// --- Nodes that leave the job while it continues

bool can_leave(const RoundState& state, int node, Time now) {
  const bool is_between = state.phase == RoundPhase::Running ||
                          state.phase == RoundPhase::Stopping || state.phase == RoundPhase::Pausing;
  return is_between && !state.ending &&
         (!node_at(state, node).hello.is_coordinator || state.has_successor) &&
         nodes_without(state, node, now) >= state.rules.min_nodes;
}

void let_go(RoundStep& step, int node, int signal) {
  RoundState& state = step.state;
  RoundNode& self = node_at(state, node);
  if (self.leave_signal) return;
  self.leave_signal = signal;
  const bool is_coordinator = self.hello.is_coordinator;
  const std::string cause = name_of(state, node) + " leaves: it was sent " + signal_name(signal) +
                            (is_coordinator ? "; another node is to coordinate the job" : "");
  step.log(LogLevel::Info, cause);
  if (is_coordinator && state.phase == RoundPhase::Pausing) return next_world(step);
  const bool is_idle = state.phase == RoundPhase::Pausing || self.is_done;
  if (is_idle && !is_coordinator) return dismiss(step, node);
  if (state.phase == RoundPhase::Running) stop_round(step, cause);
}

void dismiss(RoundStep& step, int node) {
  RoundState& state = step.state;
  const RoundNode& self = node_at(state, node);
  const std::string reason = "it was sent " + signal_name(*self.leave_signal);
  state.last_loss = NodeLost{node, self.hello.host, false, reason};
  vacate(step, node, Interrupted{*self.leave_signal, node, self.hello.host});
}

void replace_slow(RoundStep& step) {
  RoundState& state = step.state;
  if (!state.rules.exclude_slow) return;
  if (state.slow_replaced_at && step.now - *state.slow_replaced_at < kBetweenReplacements) return;
  // A world in which workers have returned 0 is about to end.
  if (state.pending_count < static_cast<int>(state.nodes.size())) return;
  for (const auto& [node, slow] : state.slow_ranks.slow_nodes()) {
    if (!can_be_replaced(state, node, step.now)) continue;
    state.slow_replaced_at = step.now;
    const std::string reason = (slow.rank ? "its rank " + std::to_string(*slow.rank) : "it") +
                               " is " + std::to_string(slow.percent) +
                               " % slower than the others: " + slow.evidence;
    node_at(state, node).slow = reason + " (--exclude-slow)";
    return stop_round(step, "a standby node replaces " + name_of(state, node) + ": " + reason);
  }
}

}  // namespace drun::rendezvous
