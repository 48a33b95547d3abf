#include "agent/workers/worker_group.h"

#include <algorithm>
#include <cassert>

#include "rendezvous/base/result.h"

namespace drun::agent::worker_group {
namespace {

using Actions = std::vector<Action>;

template <typename... Phases>
bool is_in(const State& worker_group) {
  return (std::holds_alternative<Phases>(worker_group.phase) || ...);
}

Actions begin_killing(State& worker_group, Time now) {
  worker_group.phase = Killing{.again_at = now + worker_group.times.kill_again,
                               .give_up_at = now + worker_group.times.unkillable};
  return {KillAll{}, CheckIfGone{}};
}

Actions begin_stopping(State& worker_group, int signal, Time now) {
  if (worker_group.times.shutdown <= Milliseconds::zero()) return begin_killing(worker_group, now);
  worker_group.phase = Stopping{.kill_at = now + worker_group.times.shutdown};
  return {SignalAll{signal}, CheckIfGone{}};
}

Actions terminate_leftovers(State& worker_group, Milliseconds until_kill, Time now) {
  worker_group.phase = Terminating{.kill_at = now + until_kill};
  return {SignalAll{SIGTERM}, CheckIfGone{}};
}

Actions end(State& worker_group, RoundEnd how) {
  worker_group.phase = Idle{};
  worker_group.alive = 0;
  return {ReportGone{how}};
}

Actions keep_leftovers(State& worker_group) {
  worker_group.phase = Kept{};
  return {ReportGone{RoundEnd::Kept}};
}

// Every worker returned 0. CheckIfGone precedes any signal, because most workers leave no processes
// behind.
Actions succeed(State& worker_group, Time now) {
  const Times& times = worker_group.times;
  switch (worker_group.leftovers) {
    case LeftoverPolicy::Wait:
      worker_group.phase = Waiting{.report_at = times.wait_report < times.shutdown
                                                    ? std::optional(now + times.wait_report)
                                                    : std::nullopt,
                                   .terminate_at = now + times.shutdown};
      break;
    case LeftoverPolicy::Keep:
      worker_group.phase = Settling{.keep_at = now + times.settle};
      break;
    case LeftoverPolicy::Kill: {
      Actions actions{ReportSuccess{}};
      for (const Action& action : times.shutdown <= Milliseconds::zero()
                                      ? begin_killing(worker_group, now)
                                      : terminate_leftovers(worker_group, times.shutdown, now))
        actions.push_back(action);
      return actions;
    }
  }
  return {ReportSuccess{}, CheckIfGone{}};
}

Actions on_started(State& worker_group, const Started& started) {
  assert(is_in<Idle>(worker_group) && started.workers > 0);
  worker_group.phase = Running{};
  worker_group.alive = started.workers;
  return {};
}

Actions on_worker_exited(State& worker_group, const WorkerExited& exited, Time now) {
  if (is_in<Idle>(worker_group)) return {};  // given up earlier, and exited now
  assert((is_in<Running, Held, Notified, Stopping, Killing>(worker_group)) &&
         worker_group.alive > 0);
  --worker_group.alive;
  const bool failed = exited.before_stop && !exited.succeeded;
  Actions actions;
  const bool is_held = failed && exited.holds_stop && is_in<Running>(worker_group);
  if (is_held) worker_group.phase = Held{.stop_at = now + worker_group.times.hold};
  if (is_in<Running>(worker_group)) {
    // Signal before reporting, because the signal lets other processes act; the report follows at
    // once.
    if (failed) actions = begin_stopping(worker_group, SIGTERM, now);
    if (!failed && worker_group.alive == 0) return succeed(worker_group, now);
  }
  if (failed) actions.push_back(ReportFailure{exited.local_rank});
  if (worker_group.alive == 0 && is_in<Notified, Stopping, Killing>(worker_group))
    actions.push_back(CheckIfGone{});
  return actions;
}

Actions on_stop_requested(State& worker_group, const StopRequested& stop, Time now) {
  if (is_in<Running>(worker_group) && stop.notice > Milliseconds::zero()) {
    worker_group.phase = Notified{.stop_at = now + stop.notice};
    return {NotifyAll{stop.signal}, CheckIfGone{}};
  }
  if (!is_in<Running, Held, Notified, Waiting, Settling, Kept>(worker_group)) return {};
  return begin_stopping(worker_group, stop.notice > Milliseconds::zero() ? SIGTERM : stop.signal,
                        now);
}

Actions on_kill_requested(State& worker_group, Time now) {
  if (is_in<Idle, Killing>(worker_group)) return {};
  return begin_killing(worker_group, now);
}

Actions on_all_gone(State& worker_group) {
  if (worker_group.alive > 0 || is_in<Idle, Running, Held>(worker_group)) return {};
  if (!is_in<Kept>(worker_group)) return end(worker_group, RoundEnd::Clean);
  worker_group.phase = Idle{};
  return {};
}

Actions on_waiting_deadline(State& worker_group, Waiting& waiting, Time now) {
  if (now >= waiting.terminate_at)
    return terminate_leftovers(worker_group, worker_group.times.leftover_kill, now);
  waiting.report_at.reset();
  return {ReportWaiting{std::chrono::duration_cast<Milliseconds>(waiting.terminate_at - now)}};
}

Actions on_killing_deadline(State& worker_group, Killing& killing, Time now) {
  if (now >= killing.give_up_at) return end(worker_group, RoundEnd::Unkillable);
  killing.again_at = now + worker_group.times.kill_again;
  return {KillAll{}, CheckIfGone{}};
}

Actions on_deadline_passed(State& worker_group, Time now) {
  if (const std::optional<Time> due = deadline(worker_group); !due || now < *due) return {};
  return std::visit(
      Overloaded{
          [](Idle&) { return Actions{}; },
          [](Running&) { return Actions{}; },
          [](Kept&) { return Actions{}; },
          [&worker_group, now](Held&) { return begin_stopping(worker_group, SIGTERM, now); },
          [&worker_group, now](Notified&) { return begin_stopping(worker_group, SIGTERM, now); },
          [&worker_group, now](Stopping&) { return begin_killing(worker_group, now); },
          [&worker_group, now](Waiting& waiting) {
            return on_waiting_deadline(worker_group, waiting, now);
          },
          [&worker_group](Settling&) { return keep_leftovers(worker_group); },
          [&worker_group, now](Terminating&) { return begin_killing(worker_group, now); },
          [&worker_group, now](Killing& killing) {
            return on_killing_deadline(worker_group, killing, now);
          },
      },
      worker_group.phase);
}

}  // namespace

std::vector<Action> step(State& worker_group, const Event& event, Time now) {
  return std::visit(
      Overloaded{
          [&worker_group](const Started& started) { return on_started(worker_group, started); },
          [&worker_group, now](const WorkerExited& exited) {
            return on_worker_exited(worker_group, exited, now);
          },
          [&worker_group, now](const StopRequested& stop) {
            return on_stop_requested(worker_group, stop, now);
          },
          [&worker_group, now](const KillRequested&) {
            return on_kill_requested(worker_group, now);
          },
          [&worker_group](const AllGone&) { return on_all_gone(worker_group); },
          [&worker_group, now](const DeadlinePassed&) {
            return on_deadline_passed(worker_group, now);
          },
      },
      event);
}

std::optional<Time> deadline(const State& worker_group) {
  using Due = std::optional<Time>;
  return std::visit(Overloaded{
                        [](const Idle&) { return Due(); },
                        [](const Running&) { return Due(); },
                        [](const Kept&) { return Due(); },
                        [](const Held& held) { return Due(held.stop_at); },
                        [](const Notified& notified) { return Due(notified.stop_at); },
                        [](const Stopping& stopping) { return Due(stopping.kill_at); },
                        [](const Waiting& waiting) {
                          return Due(waiting.report_at.value_or(waiting.terminate_at));
                        },
                        [](const Settling& settling) { return Due(settling.keep_at); },
                        [](const Terminating& terminating) { return Due(terminating.kill_at); },
                        [](const Killing& killing) {
                          return Due(std::min(killing.again_at, killing.give_up_at));
                        },
                    },
                    worker_group.phase);
}

}  // namespace drun::agent::worker_group
