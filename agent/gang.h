// core. The gang: a node's workers, as one thing that runs, is stopped, and is gone.
//
// Shape:   one round from Began to ReportGone. Workers are counted here and known by local rank;
//          processes, signals and /proc are the edge's (workers.h).
// Rule:    a failure is an end that the edge saw before it sent our first stop signal (`own`);
//          every later end is our doing.
// Units:   times are steady-clock points given by the caller.
// Owner:   a value; copy freely.   Thread: any, one at a time.
// Errors:  none; every state answers every event (what cannot happen is asserted).
//
//            Began    last worker  own failure   StopAsked  KillAsked  NothingLeft  deadline
//  Idle      Running  -            -             -          -          -            -
//  Running   !        Clearing     Stopping (1)  Stopping   Killing    -            -
//  Stopping  !        Clearing     report it     -          Killing    -            Killing
//  Clearing  !        !            !             -          Killing    Idle: gone   (2), Killing
//  Killing   !        look         report it     -          -          Idle: gone   kill again, (3)
//
//  Running's last worker: all returned 0.
//  (1) straight to Killing when the shutdown timeout is 0; the same for StopAsked
//  (2) after success leftovers have `settle` to end by themselves, as helpers of a worker that has
//      just returned do; then a signal
//  (3) Idle: gone without those that cannot be killed (stuck in the kernel)
//  ! impossible from us: asserted        - nothing happens
#pragma once

#include <chrono>
#include <csignal>
#include <optional>
#include <variant>
#include <vector>

namespace drun::agent::gang {

using Time = std::chrono::steady_clock::time_point;
using Milliseconds = std::chrono::milliseconds;

struct Times {
  Milliseconds shutdown{30'000};   // first stop signal to KILL
  Milliseconds settle{100};        // after success, before leftovers are told to go
  Milliseconds leftover{500};      // leftovers: TERM to KILL
  Milliseconds kill_again{50};     // KILL to the next KILL, for what was forked in between
  Milliseconds unkillable{5'000};  // first KILL to giving up
  bool operator==(const Times&) const = default;
};

// Events.
struct Began {
  int workers = 0;  // more than 0
};
struct WorkerEnded {
  int local_rank = 0;
  bool succeeded = false;
  bool own = true;  // seen before our first stop signal was sent
};
struct StopAsked {
  int signal = SIGTERM;
};
struct KillAsked {};
struct NothingLeft {};  // no worker and no descendant exists any more
struct DeadlinePassed {};
using Event = std::variant<Began, WorkerEnded, StopAsked, KillAsked, NothingLeft, DeadlinePassed>;

// Actions, to be done in order.
struct SignalAll {  // to every group and to descendants outside of them, each once, then CONT
  int signal = SIGTERM;
};
struct KillAll {};  // to all of them, as often as it is asked
struct Look {};     // answer NothingLeft now, or as soon as it is true
struct ReportFailure {
  int local_rank = 0;
};
struct ReportSuccess {};
struct ReportGone {
  bool is_clean = true;  // false: some could not be killed
};
using Action = std::variant<SignalAll, KillAll, Look, ReportFailure, ReportSuccess, ReportGone>;

// States.
struct Idle {
  bool operator==(const Idle&) const = default;
};
struct Running {
  bool operator==(const Running&) const = default;
};
struct Stopping {
  int signal = SIGTERM;
  Time kill_at{};
  bool operator==(const Stopping&) const = default;
};
struct Clearing {
  std::optional<Time> signal_at;  // absent: they have had their signal
  Time kill_at{};
  bool operator==(const Clearing&) const = default;
};
struct Killing {
  Time again_at{};
  Time give_up_at{};
  bool operator==(const Killing&) const = default;
};
using Phase = std::variant<Idle, Running, Stopping, Clearing, Killing>;

struct State {
  Times times;
  Phase phase = Idle{};
  int alive = 0;  // workers not yet ended
  bool operator==(const State&) const = default;
};

std::vector<Action> step(State& gang, const Event& event, Time now);

// When it wants DeadlinePassed; an early one changes nothing.
std::optional<Time> deadline(const State& gang);

}  // namespace drun::agent::gang
