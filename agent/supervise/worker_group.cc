#include "agent/supervise/worker_group.h"

#include <algorithm>
#include <cassert>

#include "rendezvous/base/result.h"

namespace drun::agent::gang {
namespace {

using Actions = std::vector<Action>;

template <typename... Phases>
bool is_in(const State& gang) {
  return (std::holds_alternative<Phases>(gang.phase) || ...);
}

Actions begin_killing(State& gang, Time now) {
  gang.phase =
      Killing{.again_at = now + gang.times.kill_again, .give_up_at = now + gang.times.unkillable};
  return {KillAll{}, CheckIfGone{}};
}

Actions begin_stopping(State& gang, int signal, Time now) {
  if (gang.times.shutdown <= Milliseconds::zero()) return begin_killing(gang, now);
  gang.phase = Stopping{.kill_at = now + gang.times.shutdown};
  return {SignalAll{signal}, CheckIfGone{}};
}

Actions terminate_leftovers(State& gang, Milliseconds until_kill, Time now) {
  gang.phase = Terminating{.kill_at = now + until_kill};
  return {SignalAll{SIGTERM}, CheckIfGone{}};
}

Actions end(State& gang, RoundEnd how) {
  gang.phase = Idle{};
  gang.alive = 0;
  return {ReportGone{how}};
}

Actions keep_leftovers(State& gang) {
  gang.phase = Kept{};
  return {ReportGone{RoundEnd::Kept}};
}

// Every worker returned 0. CheckIfGone precedes any signal, because most workers leave no processes
// behind.
Actions succeed(State& gang, Time now) {
  const Times& times = gang.times;
  switch (gang.leftovers) {
    case LeftoverPolicy::Wait:
      gang.phase = Waiting{.report_at = times.wait_report < times.shutdown
                                            ? std::optional(now + times.wait_report)
                                            : std::nullopt,
                           .terminate_at = now + times.shutdown};
      break;
    case LeftoverPolicy::Keep:
      gang.phase = Settling{.keep_at = now + times.settle};
      break;
    case LeftoverPolicy::Kill: {
      Actions actions{ReportSuccess{}};
      for (const Action& action : times.shutdown <= Milliseconds::zero()
                                      ? begin_killing(gang, now)
                                      : terminate_leftovers(gang, times.shutdown, now))
        actions.push_back(action);
      return actions;
    }
  }
  return {ReportSuccess{}, CheckIfGone{}};
}

Actions on_started(State& gang, const Started& started) {
  assert(is_in<Idle>(gang) && started.workers > 0);
  gang.phase = Running{};
  gang.alive = started.workers;
  return {};
}

Actions on_worker_exited(State& gang, const WorkerExited& exited, Time now) {
  if (is_in<Idle>(gang)) return {};  // given up earlier, and exited now
  assert((is_in<Running, Notified, Stopping, Killing>(gang)) && gang.alive > 0);
  --gang.alive;
  const bool failed = exited.before_stop && !exited.succeeded;
  Actions actions;
  if (is_in<Running>(gang)) {
    // Signal before reporting, because the signal lets other processes act; the report follows at
    // once.
    if (failed) actions = begin_stopping(gang, SIGTERM, now);
    if (!failed && gang.alive == 0) return succeed(gang, now);
  }
  if (failed) actions.push_back(ReportFailure{exited.local_rank});
  if (gang.alive == 0 && is_in<Notified, Stopping, Killing>(gang)) actions.push_back(CheckIfGone{});
  return actions;
}

Actions on_stop_requested(State& gang, const StopRequested& stop, Time now) {
  if (is_in<Running>(gang) && stop.notice > Milliseconds::zero()) {
    gang.phase = Notified{.stop_at = now + stop.notice};
    return {NotifyAll{stop.signal}, CheckIfGone{}};
  }
  if (!is_in<Running, Notified, Waiting, Settling, Kept>(gang)) return {};
  return begin_stopping(gang, stop.notice > Milliseconds::zero() ? SIGTERM : stop.signal, now);
}

Actions on_kill_requested(State& gang, Time now) {
  if (is_in<Idle, Killing>(gang)) return {};
  return begin_killing(gang, now);
}

Actions on_all_gone(State& gang) {
  if (gang.alive > 0 || is_in<Idle, Running>(gang)) return {};
  if (!is_in<Kept>(gang)) return end(gang, RoundEnd::Clean);
  gang.phase = Idle{};
  return {};
}

Actions on_waiting_deadline(State& gang, Waiting& waiting, Time now) {
  if (now >= waiting.terminate_at) return terminate_leftovers(gang, gang.times.leftover_kill, now);
  waiting.report_at.reset();
  return {ReportWaiting{std::chrono::duration_cast<Milliseconds>(waiting.terminate_at - now)}};
}

Actions on_killing_deadline(State& gang, Killing& killing, Time now) {
  if (now >= killing.give_up_at) return end(gang, RoundEnd::Unkillable);
  killing.again_at = now + gang.times.kill_again;
  return {KillAll{}, CheckIfGone{}};
}

Actions on_deadline_passed(State& gang, Time now) {
  if (const std::optional<Time> due = deadline(gang); !due || now < *due) return {};
  return std::visit(
      Overloaded{
          [](Idle&) { return Actions{}; },
          [](Running&) { return Actions{}; },
          [](Kept&) { return Actions{}; },
          [&gang, now](Notified&) { return begin_stopping(gang, SIGTERM, now); },
          [&gang, now](Stopping&) { return begin_killing(gang, now); },
          [&gang, now](Waiting& waiting) { return on_waiting_deadline(gang, waiting, now); },
          [&gang](Settling&) { return keep_leftovers(gang); },
          [&gang, now](Terminating&) { return begin_killing(gang, now); },
          [&gang, now](Killing& killing) { return on_killing_deadline(gang, killing, now); },
      },
      gang.phase);
}

}  // namespace

std::vector<Action> step(State& gang, const Event& event, Time now) {
  return std::visit(
      Overloaded{
          [&gang](const Started& started) { return on_started(gang, started); },
          [&gang, now](const WorkerExited& exited) { return on_worker_exited(gang, exited, now); },
          [&gang, now](const StopRequested& stop) { return on_stop_requested(gang, stop, now); },
          [&gang, now](const KillRequested&) { return on_kill_requested(gang, now); },
          [&gang](const AllGone&) { return on_all_gone(gang); },
          [&gang, now](const DeadlinePassed&) { return on_deadline_passed(gang, now); },
      },
      event);
}

std::optional<Time> deadline(const State& gang) {
  using Due = std::optional<Time>;
  return std::visit(Overloaded{
                        [](const Idle&) { return Due(); },
                        [](const Running&) { return Due(); },
                        [](const Kept&) { return Due(); },
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
                    gang.phase);
}

}  // namespace drun::agent::gang
