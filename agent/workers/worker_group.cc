#include "agent/workers/worker_group.h"

#include <algorithm>
#include <cassert>

namespace drun::agent::worker_group {
namespace {

using Actions = std::vector<Action>;

template <Phase... kPhases>
bool is_in(const State& worker_group) {
  return ((worker_group.phase == kPhases) || ...);
}

void enter(State& worker_group, Phase phase, std::optional<Time> ends_at = {}) {
  worker_group.phase = phase;
  worker_group.ends_at = ends_at;
  worker_group.acts_at.reset();
}

Actions begin_killing(State& worker_group, Time now) {
  enter(worker_group, Phase::Killing, now + worker_group.times.unkillable);
  worker_group.acts_at = now + worker_group.times.kill_again;
  return {KillAll{}, CheckIfGone{}};
}

Actions begin_stopping(State& worker_group, int signal, Time now) {
  if (worker_group.times.shutdown <= Milliseconds::zero()) return begin_killing(worker_group, now);
  enter(worker_group, Phase::Stopping, now + worker_group.times.shutdown);
  return {SignalAll{signal}, CheckIfGone{}};
}

Actions terminate_leftovers(State& worker_group, Milliseconds until_kill, Time now) {
  enter(worker_group, Phase::Terminating, now + until_kill);
  return {SignalAll{SIGTERM}, CheckIfGone{}};
}

Actions end(State& worker_group, RoundEnd how) {
  enter(worker_group, Phase::Idle);
  worker_group.alive = 0;
  return {ReportGone{how}};
}

Actions keep_leftovers(State& worker_group) {
  enter(worker_group, Phase::Kept);
  return {ReportGone{RoundEnd::Kept}};
}

// Every worker returned 0. CheckIfGone precedes any signal, because most workers leave no processes
// behind.
Actions succeed(State& worker_group, Time now) {
  const Times& times = worker_group.times;
  switch (worker_group.leftovers) {
    case LeftoverPolicy::Wait:
      enter(worker_group, Phase::Waiting, now + times.shutdown);
      if (times.wait_report < times.shutdown) worker_group.acts_at = now + times.wait_report;
      break;
    case LeftoverPolicy::Keep:
      enter(worker_group, Phase::Settling, now + times.settle);
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

Actions on(State& worker_group, const Started& started, Time) {
  assert(is_in<Phase::Idle>(worker_group) && started.workers > 0);
  enter(worker_group, Phase::Running);
  worker_group.alive = started.workers;
  return {};
}

Actions on(State& worker_group, const WorkerExited& exited, Time now) {
  using enum Phase;
  if (is_in<Idle>(worker_group)) return {};  // given up earlier, and exited now
  assert((is_in<Running, Held, Notified, Stopping, Killing>(worker_group)) &&
         worker_group.alive > 0);
  --worker_group.alive;
  const bool failed = exited.before_stop && !exited.succeeded;
  Actions actions;
  if (failed && exited.holds_stop && is_in<Running>(worker_group))
    enter(worker_group, Held, now + worker_group.times.hold);
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

Actions on(State& worker_group, const StopRequested& stop, Time now) {
  using enum Phase;
  const bool has_notice = stop.notice > Milliseconds::zero();
  if (is_in<Running>(worker_group) && has_notice) {
    enter(worker_group, Notified, now + stop.notice);
    return {NotifyAll{stop.signal}, CheckIfGone{}};
  }
  if (!is_in<Running, Held, Notified, Waiting, Settling, Kept>(worker_group)) return {};
  return begin_stopping(worker_group, has_notice ? SIGTERM : stop.signal, now);
}

Actions on(State& worker_group, const KillRequested&, Time now) {
  if (is_in<Phase::Idle, Phase::Killing>(worker_group)) return {};
  return begin_killing(worker_group, now);
}

Actions on(State& worker_group, const AllGone&, Time) {
  using enum Phase;
  if (worker_group.alive > 0 || is_in<Idle, Running, Held>(worker_group)) return {};
  if (!is_in<Kept>(worker_group)) return end(worker_group, RoundEnd::Clean);
  enter(worker_group, Idle);
  return {};
}

Actions on(State& worker_group, const DeadlinePassed&, Time now) {
  if (const std::optional<Time> due = deadline(worker_group); !due || now < *due) return {};
  const bool is_over = now >= *worker_group.ends_at;
  switch (worker_group.phase) {
    case Phase::Idle:
    case Phase::Running:
    case Phase::Kept:
      return {};
    case Phase::Held:
    case Phase::Notified:
      return begin_stopping(worker_group, SIGTERM, now);
    case Phase::Stopping:
    case Phase::Terminating:
      return begin_killing(worker_group, now);
    case Phase::Waiting:
      if (is_over) return terminate_leftovers(worker_group, worker_group.times.leftover_kill, now);
      worker_group.acts_at.reset();
      return {ReportWaiting{std::chrono::duration_cast<Milliseconds>(*worker_group.ends_at - now)}};
    case Phase::Settling:
      return keep_leftovers(worker_group);
    case Phase::Killing:
      if (is_over) return end(worker_group, RoundEnd::Unkillable);
      worker_group.acts_at = now + worker_group.times.kill_again;
      return {KillAll{}, CheckIfGone{}};
  }
  return {};
}

}  // namespace

std::vector<Action> step(State& worker_group, const Event& event, Time now) {
  return std::visit([&](const auto& happened) { return on(worker_group, happened, now); }, event);
}

std::optional<Time> deadline(const State& worker_group) {
  if (!worker_group.ends_at) return std::nullopt;
  return std::min(*worker_group.ends_at, worker_group.acts_at.value_or(*worker_group.ends_at));
}

}  // namespace drun::agent::worker_group
