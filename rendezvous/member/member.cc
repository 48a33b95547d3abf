#include "rendezvous/member/member.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "rendezvous/member/member_ending.h"
#include "rendezvous/member/member_turn.h"
#include "rendezvous/round/roll_call.h"

namespace drun::rendezvous {
namespace {

using Phase = MemberPhase;

constexpr std::chrono::seconds kLeaveLimit{2};

}  // namespace

void MemberTurn::handle(const Heard& heard) {
  const bool is_connected = !is_in({Phase::Resting, Phase::Dialing, Phase::Ending, Phase::Ended});
  if (!is_connected) return;  // was still on its way when we disconnected
  state_.heard = now_;
  std::visit([this](const auto& message) { hear(message); }, heard.message);
}

void MemberTurn::hear(const Welcome& welcome) {
  if (state_.phase != Phase::Greeting) return broken("a second welcome");
  state_.phase = Phase::Joined;
  state_.rejoin_by.reset();
  state_.seeking = {.next = state_.seeking.next, .term = welcome.term};
  state_.heartbeat_timeout = std::max(welcome.heartbeat_timeout, Milliseconds(4));
  state_.next_ping = now_ + state_.heartbeat_timeout / 4;
}

void MemberTurn::hear(const Waiting& waiting) {
  if (!is_in({Phase::Joined, Phase::Stopped})) return;
  state_.waiting = waiting;
  const JoinSpec& join = state_.spec.join;
  log(join.shows_progress && join.is_coordinator ? LogLevel::Debug : LogLevel::Info,
      is_elastic() ? elastic_waiting_text(waiting, state_.endpoint)
                   : waiting_text(waiting, state_.endpoint, time_left()));
}

void MemberTurn::hear(const Refused& refused) {
  if (!is_in({Phase::Greeting, Phase::Joined})) return broken("a refusal after the welcome");
  give_up(refused.error);
}

void MemberTurn::hear(const WorldReady& ready) {
  if (state_.phase == Phase::Leaving) {  // it crossed our signal: nothing is started
    state_.world = ready.world;
    state_.leave_by.reset();  // it lives: an outcome follows
    return;
  }
  const JoinSpec& join = state_.spec.join;
  const bool is_next = state_.phase == Phase::Joined ||
                       (state_.phase == Phase::Stopped && ready.world.round > state_.world->round);
  const bool is_ours = (is_elastic() || ready.world.node_rank == join.node_rank) &&
                       ready.world.local_world_size == join.local_world_size;
  if (!is_next || !is_ours) return broken("a world that is not ours");
  state_.phase = Phase::Running;
  state_.world = ready.world;
  state_.own_failures = FailureList();
  if (!state_.first_world) state_.first_world = now_;
  if (is_elastic()) remember(state_.memory, ready.world, join.endpoint.host, now_);
  if (!join.master_addr.empty()) state_.world->master_addr = join.master_addr;
  if (join.master_port != 0) state_.world->master_port = join.master_port;
  actions_.emplace_back(StartWorkers{*state_.world});
}

void MemberTurn::hear(const Stop& stop) {
  if (is_in({Phase::Greeting, Phase::Joined})) return broken("a stop before any world");
  if (!is_round(stop.round)) return;
  if (state_.phase == Phase::Leaving) {
    say(Stopped{.round = stop.round});
    return;
  }
  if (!is_in({Phase::Running, Phase::Done})) return;
  state_.phase = Phase::Stopping;
  log(LogLevel::Info, "stopping workers: " + stop.cause);
  actions_.emplace_back(StopWorkers{stop.round});
}

void MemberTurn::hear(const Finish& finish) {
  if (state_.phase == Phase::Greeting) return broken("an outcome before the welcome");
  // Whoever is done, has stopped or never started has no workers left to wait for.
  if (is_in({Phase::Joined, Phase::Done, Phase::Stopped, Phase::Leaving}))
    return conclude(finish.outcome);
  end_once_stopped(finish.outcome);
}

void MemberTurn::hear(const NodeLeftOut& told) {
  if (!is_elastic() || state_.phase == Phase::Greeting)
    return broken("a node left out of a world that has no line");
  if (is_in({Phase::Joined, Phase::Running, Phase::Done, Phase::Stopping, Phase::Stopped}))
    actions_.emplace_back(ShowLeftOut{told.node});
}

void MemberTurn::hear(const LivenessCheck& check) {
  if (state_.phase == Phase::Greeting) return broken("a liveness check before the welcome");
  say(LivenessReply{check.check});
}

void MemberTurn::handle(const OwnFailure& own) {
  if (!is_round(own.failure.failure.round) || state_.phase != Phase::Running) return;
  state_.phase = Phase::Stopping;
  state_.own_failures.add(own.failure.failure, now_ - own.failure.age);
  say(Failed{own.failure.failure.round, {brief(own.failure.failure), own.failure.age}});
}

void MemberTurn::handle(const OwnSuccess& own) {
  if (!is_round(own.round) || state_.phase != Phase::Running) return;
  state_.phase = Phase::Done;
  say(AllReturned{own.round});
}

void MemberTurn::handle(const OwnStopped& own) {
  if (!is_round(own.round)) return;
  if (state_.phase == Phase::Running) {
    assert(!own.failures.empty());  // workers do not vanish
    handle(OwnFailure{own.failures.front()});
  }
  for (const AgedFailure& aged : own.failures)
    state_.own_failures.add(aged.failure, now_ - aged.age);
  state_.unusable = own.unusable;
  if (state_.phase == Phase::Parting)
    return state_.signal ? end(lost_ending(state_, *state_.lost_reason)) : rejoin();
  if (state_.phase == Phase::Ending)
    return conclude(state_.outcome
                        ? *std::exchange(state_.outcome, std::nullopt)
                        : local_outcome(state_, lost_ending(state_, state_.last_trouble), now_));
  if (state_.phase != Phase::Stopping) return;
  state_.phase = Phase::Stopped;
  Stopped stopped{.round = own.round};
  for (const FailureList::Entry& entry : state_.own_failures.entries())
    stopped.failures.push_back(
        {entry.failure,
         std::chrono::duration_cast<std::chrono::microseconds>(now_ - entry.moment)});
  stopped.left_out = state_.own_failures.left_out();
  stopped.unusable = state_.unusable;
  say(std::move(stopped));
  if (state_.signal) leave(std::nullopt);
}

void MemberTurn::handle(const OwnSignal& own) {
  if (is_in({Phase::Resting, Phase::Dialing, Phase::Greeting}))
    return end(Interrupted{own.signal, own_rank(state_), state_.spec.host});
  if (state_.signal || is_in({Phase::Ending, Phase::Ended})) return;
  state_.signal = own.signal;
  if (state_.phase == Phase::Parting) return;
  say(Signalled{own.signal});
  if (state_.phase == Phase::Joined) return leave(now_ + kLeaveLimit);
  if (state_.phase == Phase::Stopped) return leave(std::nullopt);
  if (!is_in({Phase::Running, Phase::Done})) return;
  state_.phase = Phase::Stopping;
  actions_.emplace_back(StopWorkers{state_.world->round});
}

void MemberTurn::leave(std::optional<Time> by) {
  state_.phase = Phase::Leaving;
  state_.leave_by = by;
}

void MemberTurn::end(Ending ending) { conclude(local_outcome(state_, std::move(ending), now_)); }

// Own workers first: the outcome is the last that is heard of a job.
void MemberTurn::end_once_stopped(std::optional<Outcome> outcome) {
  if (is_in({Phase::Running, Phase::Done})) actions_.emplace_back(StopWorkers{state_.world->round});
  const bool has_stopped = state_.phase == Phase::Stopped;
  state_.phase = Phase::Ending;
  state_.outcome = std::move(outcome);
  if (has_stopped) handle(OwnStopped{state_.world->round, {}});
}

void MemberTurn::conclude(Outcome outcome) {
  state_.phase = Phase::Ended;
  actions_.emplace_back(Disconnect{});
  actions_.emplace_back(End{std::move(outcome)});
}

Hello hello_of(const MemberSpec& spec) {
  const JoinSpec& join = spec.join;
  const bool is_elastic = join.elastic.has_value();
  return {.run_id = spec.join.run_id,
          .node_rank = is_elastic ? std::nullopt : std::optional(join.node_rank),
          .node_count = spec.join.node_count,
          .local_world_size = spec.join.local_world_size,
          .role = spec.join.role,
          .host = spec.host,
          .pid = spec.pid,
          .instance = spec.instance,
          .least_node_count = is_elastic ? join.elastic->min_nodes : join.node_count,
          .slot = join.slot,
          .is_host = is_elastic && join.is_coordinator,
          .addresses = join.secret ? join.addresses : std::vector<std::string>(),
          .gathers = join.gathers_lines,
          .roles = join.roles};
}

MemberState new_member(MemberSpec spec) {
  MemberState state;
  state.endpoint = to_string(spec.join.endpoint);
  state.spec = std::move(spec);
  state.jitter.seed(
      static_cast<std::minstd_rand::result_type>(state.spec.instance % std::minstd_rand::modulus));
  return state;
}

std::vector<MemberAction> step(MemberState& state, const MemberEvent& event, Time now) {
  MemberTurn turn(state, now);
  std::visit([&turn](const auto& happened) { turn.handle(happened); }, event);
  return turn.take_actions();
}

}  // namespace drun::rendezvous
