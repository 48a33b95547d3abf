// core. State machine for one node's workers during one round: running, stopping, cleaning up.
//
// Pure: the caller (workers.h) owns processes and signals, feeds events in, and carries out the
// returned actions in order. A worker is its leader and everything that the leader started; the
// round ends when all of it is gone. A worker's exit counts as a failure only if it was observed
// before the first stop signal was sent; exits after that are caused by the stop.
//
//               Started  last exit  failure     Stop          Kill     AllGone  deadline
//  Idle         Running  -          -           -             -        -        -
//  Running      assert   success 1  Stop. 2, 7  Stopping 2,3  Killing  -        -
//  Held         assert   -          record 7    Stopping 2    Killing  -        Stopping 2
//  Notified     assert   check      record      Stopping 2    Killing  Idle 4   Stopping 2
//  Stopping     assert   check      record      -             Killing  Idle 4   Killing
//  Waiting      assert   assert     assert      Stopping 2    Killing  Idle     report, Terminating
//  Settling     assert   assert     assert      Stopping 2    Killing  Idle     Kept
//  Terminating  assert   assert     assert      -             Killing  Idle     Killing
//  Kept         assert   assert     assert      Stopping 2    Killing  Idle 5   -
//  Killing      assert   check      record      -             -        Idle 4   kill again, Idle 6
//
//  1  every worker returned 0: Waiting, Settling or Terminating, depending on the policy for
//     leftover processes
//  2  one deadline for all processes, even if some workers have exited; Killing if it is 0
//  3  a stop with a notice enters Notified first: the workers get its signal, and SIGTERM follows
//     when the notice time has passed
//  4  only once every worker has been reaped
//  5  the round's end was reported on entry to Kept
//  6  after `unkillable`: gives up and reports the processes that SIGKILL did not end
//  7  a failure with `holds_stop` enters Held: the other workers run on for a moment, so that their
//     stacks can be read, here and on other nodes; every later failure is recorded
//  -  ignored      assert  cannot happen unless the caller has a bug
#pragma once

#include <chrono>
#include <csignal>
#include <optional>
#include <variant>
#include <vector>

#include "agent/spec.h"

namespace drun::agent::worker_group {

using Time = std::chrono::steady_clock::time_point;
using Milliseconds = std::chrono::milliseconds;

struct Times {
  // From the first stop signal to SIGKILL. From success to SIGTERM, or with LeftoverPolicy::Kill to
  // SIGKILL.
  Milliseconds shutdown{30'000};
  Milliseconds wait_report{1'000};    // Waiting: from success to the report
  Milliseconds leftover_kill{5'000};  // after Waiting: from SIGTERM to SIGKILL
  Milliseconds hold{15'000};          // Held: from the failure to the first stop signal
  Milliseconds settle{100};           // Settling: for helpers that exit just after their worker
  Milliseconds kill_again{50};        // between SIGKILLs, for what was forked in between
  Milliseconds unkillable{30'000};    // from the first SIGKILL to giving up
  bool operator==(const Times&) const = default;
};

// Events.
struct Started {
  int workers = 0;  // more than 0
};
struct WorkerExited {
  int local_rank = 0;
  bool succeeded = false;
  bool before_stop = true;  // observed before the first stop signal was sent
  bool holds_stop = false;  // the other workers are to run on for a moment
};
struct StopRequested {
  int signal = SIGTERM;
  Milliseconds notice{0};  // over 0: `signal` is a notice, and the stop follows after this time
};
struct KillRequested {};
struct AllGone {};  // no worker and no descendant exists any more
struct DeadlinePassed {};
using Event =
    std::variant<Started, WorkerExited, StopRequested, KillRequested, AllGone, DeadlinePassed>;

// Actions, to be carried out in order.
struct SignalAll {  // to every process of the round, once each, followed by SIGCONT
  int signal = SIGTERM;
};
// To every process of the round; a signal other than SIGTERM only to those that handle it, since it
// would end the others.
struct NotifyAll {
  int signal = SIGTERM;
};
struct KillAll {};      // SIGKILL to every process of the round, each time
struct CheckIfGone {};  // feed AllGone now, or as soon as it is true
struct ReportFailure {
  int local_rank = 0;
};
struct ReportSuccess {};
struct ReportWaiting {  // names the leftover processes that the round waits for
  Milliseconds time_left{0};
};
enum class RoundEnd { Clean, Kept, Unkillable };
struct ReportGone {
  RoundEnd end = RoundEnd::Clean;
};
using Action = std::variant<SignalAll, NotifyAll, KillAll, CheckIfGone, ReportFailure,
                            ReportSuccess, ReportWaiting, ReportGone>;

enum class Phase {
  Idle,
  Running,
  Held,
  Notified,
  Stopping,
  Waiting,
  Settling,
  Terminating,
  Kept,
  Killing
};

struct State {
  Times times;
  LeftoverPolicy leftovers = LeftoverPolicy::Wait;
  Phase phase = Phase::Idle;
  std::optional<Time> ends_at{};  // when the phase ends by itself; absent: it does not
  std::optional<Time> acts_at{};  // before that: Waiting reports, Killing kills again
  int alive = 0;                  // workers that have not exited
  bool operator==(const State&) const = default;
};

std::vector<Action> step(State& worker_group, const Event& event, Time now);

// When the machine needs DeadlinePassed. An early one changes nothing.
std::optional<Time> deadline(const State& worker_group);

}  // namespace drun::agent::worker_group
