#include "agent/gang.h"

#include <algorithm>
#include <cassert>

#include "rendezvous/overloaded.h"

namespace drun::agent::gang {
namespace {

using Actions = std::vector<Action>;

Actions begin_killing(State& gang, Time now) {
  gang.phase =
      Killing{.again_at = now + gang.times.kill_again, .give_up_at = now + gang.times.unkillable};
  return {KillAll{}, Look{}};
}

Actions begin_stopping(State& gang, int signal, Time now) {
  if (gang.times.shutdown <= Milliseconds::zero()) return begin_killing(gang, now);
  gang.phase = Stopping{.signal = signal, .kill_at = now + gang.times.shutdown};
  return {SignalAll{signal}};
}

Actions end(State& gang, bool is_clean) {
  gang.phase = Idle{};
  gang.alive = 0;
  return {ReportGone{is_clean}};
}

// All workers returned 0.
Actions succeed(State& gang, Time now) {
  const Time signal_at = now + gang.times.settle;
  gang.phase = Clearing{.signal_at = signal_at, .kill_at = signal_at + gang.times.leftover};
  return {ReportSuccess{}, Look{}};
}

// All workers are gone because we stopped them; their descendants have had the signal, but those
// who came to be since. The shared deadline stays the latest.
Actions clear_after_stop(State& gang, Stopping stopping, Time now) {
  gang.phase = Clearing{.signal_at = std::nullopt,
                        .kill_at = std::min(stopping.kill_at, now + gang.times.leftover)};
  return {SignalAll{stopping.signal}, Look{}};
}

Actions on_began(State& gang, const Began& began) {
  assert(std::holds_alternative<Idle>(gang.phase) && began.workers > 0);
  gang.phase = Running{};
  gang.alive = began.workers;
  return {};
}

Actions on_worker_ended(State& gang, const WorkerEnded& ended, Time now) {
  if (std::holds_alternative<Idle>(gang.phase)) return {};  // given up before, and dead at last
  assert(gang.alive > 0);
  --gang.alive;
  const bool failed = ended.own && !ended.succeeded;
  Actions actions;
  // The signal first: it is what costs time on other processes; the report follows at once.
  if (std::holds_alternative<Running>(gang.phase)) {
    if (failed) actions = begin_stopping(gang, SIGTERM, now);
    if (!failed && gang.alive == 0) return succeed(gang, now);
  }
  if (failed) actions.push_back(ReportFailure{ended.local_rank});
  if (gang.alive > 0) return actions;
  if (const auto* stopping = std::get_if<Stopping>(&gang.phase)) {
    for (const Action& action : clear_after_stop(gang, *stopping, now)) actions.push_back(action);
  } else if (std::holds_alternative<Killing>(gang.phase)) {
    actions.push_back(Look{});
  }
  return actions;
}

Actions on_stop_asked(State& gang, const StopAsked& stop, Time now) {
  if (!std::holds_alternative<Running>(gang.phase)) return {};
  return begin_stopping(gang, stop.signal, now);
}

Actions on_kill_asked(State& gang, Time now) {
  if (std::holds_alternative<Idle>(gang.phase) || std::holds_alternative<Killing>(gang.phase))
    return {};
  return begin_killing(gang, now);
}

Actions on_nothing_left(State& gang) {
  const bool awaited =
      std::holds_alternative<Clearing>(gang.phase) || std::holds_alternative<Killing>(gang.phase);
  if (!awaited || gang.alive > 0) return {};
  return end(gang, true);
}

Actions on_deadline_passed(State& gang, Time now) {
  if (const std::optional<Time> due = deadline(gang); !due || now < *due) return {};
  return std::visit(Overloaded{
                        [](Idle&) { return Actions{}; },
                        [](Running&) { return Actions{}; },
                        [&gang, now](Stopping&) { return begin_killing(gang, now); },
                        [&gang, now](Clearing& clearing) {
                          if (!clearing.signal_at) return begin_killing(gang, now);
                          clearing.signal_at.reset();
                          return Actions{SignalAll{SIGTERM}, Look{}};
                        },
                        [&gang, now](Killing& killing) {
                          if (now >= killing.give_up_at) return end(gang, false);
                          killing.again_at = now + gang.times.kill_again;
                          return Actions{KillAll{}, Look{}};
                        },
                    },
                    gang.phase);
}

}  // namespace

std::vector<Action> step(State& gang, const Event& event, Time now) {
  return std::visit(
      Overloaded{
          [&gang](const Began& began) { return on_began(gang, began); },
          [&gang, now](const WorkerEnded& ended) { return on_worker_ended(gang, ended, now); },
          [&gang, now](const StopAsked& stop) { return on_stop_asked(gang, stop, now); },
          [&gang, now](const KillAsked&) { return on_kill_asked(gang, now); },
          [&gang](const NothingLeft&) { return on_nothing_left(gang); },
          [&gang, now](const DeadlinePassed&) { return on_deadline_passed(gang, now); },
      },
      event);
}

std::optional<Time> deadline(const State& gang) {
  using Due = std::optional<Time>;
  return std::visit(Overloaded{
                        [](const Idle&) { return Due(); },
                        [](const Running&) { return Due(); },
                        [](const Stopping& stopping) { return Due(stopping.kill_at); },
                        [](const Clearing& clearing) {
                          return Due(clearing.signal_at.value_or(clearing.kill_at));
                        },
                        [](const Killing& killing) {
                          return Due(std::min(killing.again_at, killing.give_up_at));
                        },
                    },
                    gang.phase);
}

}  // namespace drun::agent::gang
