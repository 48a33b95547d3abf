#include "agent/workers/worker_group.h"

#include <random>

#include "rendezvous/base/result.h"
#include "tests/support/catch.h"

namespace drun::agent::worker_group {
namespace {

using std::chrono::milliseconds;

const Time kStart{std::chrono::hours(1)};

std::string name(const Action& action) {
  return std::visit(
      Overloaded{
          [](const SignalAll& all) { return "signal " + std::to_string(all.signal); },
          [](const NotifyAll& all) { return "notify " + std::to_string(all.signal); },
          [](const KillAll&) { return std::string("kill"); },
          [](const CheckIfGone&) { return std::string("check"); },
          [](const ReportFailure& one) { return "failed " + std::to_string(one.local_rank); },
          [](const ReportSuccess&) { return std::string("succeeded"); },
          [](const ReportWaiting& waiting) {
            return "waiting " + std::to_string(waiting.time_left.count());
          },
          [](const ReportGone& gone) {
            return std::string(gone.end == RoundEnd::Clean  ? "gone"
                               : gone.end == RoundEnd::Kept ? "kept"
                                                            : "gave up");
          },
      },
      action);
}

// One round with a manual clock.
struct Round {
  State state;
  Time now = kStart;

  std::vector<std::string> operator()(const Event& event) {
    std::vector<std::string> names;
    for (const Action& action : step(state, event, now)) names.push_back(name(action));
    return names;
  }
  std::vector<std::string> after(milliseconds time) {
    now += time;
    return (*this)(DeadlinePassed{});
  }
};

using Names = std::vector<std::string>;

Round running(int workers, milliseconds shutdown = milliseconds(30'000),
              LeftoverPolicy leftovers = LeftoverPolicy::Wait) {
  Round round{.state = {.times = {.shutdown = shutdown}, .leftovers = leftovers}};
  CHECK(round(Started{workers}).empty());
  return round;
}

const WorkerExited kGood0{.local_rank = 0, .succeeded = true};
const WorkerExited kGood1{.local_rank = 1, .succeeded = true};
const WorkerExited kBad0{.local_rank = 0};
const WorkerExited kStopped1{.local_rank = 1, .before_stop = false};

}  // namespace

TEST_CASE(
    "a round succeeds when every worker exits with code 0, and is gone when no process is left") {
  Round round = running(2);
  CHECK(round(kGood1).empty());
  CHECK(round(kGood0) == Names{"succeeded", "check"});
  CHECK(round(AllGone{}) == Names{"gone"});
  CHECK(round.state.phase == Phase::Idle);
  CHECK_FALSE(deadline(round.state));
}

TEST_CASE("after success leftover processes get the shutdown timeout, then TERM, then KILL") {
  Round round = running(1);
  round(kGood0);
  CHECK(round.after(milliseconds(999)).empty());
  CHECK(round.after(milliseconds(1)) == Names{"waiting 29000"});
  CHECK(round.after(milliseconds(28'999)).empty());
  CHECK(round.after(milliseconds(1)) == Names{"signal 15", "check"});
  CHECK(round.after(milliseconds(4'999)).empty());
  CHECK(round.after(milliseconds(1)) == Names{"kill", "check"});
  CHECK(round(AllGone{}) == Names{"gone"});
}

TEST_CASE("a round that waits for leftover processes ends when they exit") {
  Round round = running(1);
  round(kGood0);
  round.after(milliseconds(1'000));
  CHECK(round(AllGone{}) == Names{"gone"});
  CHECK_FALSE(deadline(round.state));
}

TEST_CASE(
    "with the kill policy leftover processes get TERM at once and KILL after the shutdown "
    "timeout") {
  Round round = running(1, milliseconds(2'000), LeftoverPolicy::Kill);
  CHECK(round(kGood0) == Names{"succeeded", "signal 15", "check"});
  CHECK(round.after(milliseconds(1'999)).empty());
  CHECK(round.after(milliseconds(1)) == Names{"kill", "check"});
  Round at_once = running(1, milliseconds(0), LeftoverPolicy::Kill);
  CHECK(at_once(kGood0) == Names{"succeeded", "kill", "check"});
}

TEST_CASE(
    "with the keep policy the round ends before leftover processes, which a stop still "
    "terminates") {
  Round round = running(1, milliseconds(2'000), LeftoverPolicy::Keep);
  CHECK(round(kGood0) == Names{"succeeded", "check"});
  CHECK(round.after(milliseconds(100)) == Names{"kept"});
  CHECK_FALSE(deadline(round.state));
  SECTION("they exit") {
    CHECK(round(AllGone{}).empty());
    CHECK(round.state.phase == Phase::Idle);
  }
  SECTION("a stop is requested") {
    CHECK(round(StopRequested{}) == Names{"signal 15", "check"});
    CHECK(round.after(milliseconds(2'000)) == Names{"kill", "check"});
    CHECK(round(AllGone{}) == Names{"gone"});
  }
}

TEST_CASE("a stop ends the wait for leftover processes") {
  Round round = running(1, milliseconds(2'000));
  round(kGood0);
  CHECK(round(StopRequested{2}) == Names{"signal 2", "check"});
  CHECK(round.after(milliseconds(1'999)).empty());
  CHECK(round.after(milliseconds(1)) == Names{"kill", "check"});
}

TEST_CASE("a failed worker stops the others at once and is reported once") {
  Round round = running(2);
  CHECK(round(kBad0) == Names{"signal 15", "check", "failed 0"});
  CHECK(deadline(round.state) == round.now + milliseconds(30'000));
  CHECK(round(kStopped1) == Names{"check"});
  CHECK(round(AllGone{}) == Names{"gone"});
}

TEST_CASE("a failure may hold the stop of the other workers until a request or the limit") {
  const WorkerExited held{.local_rank = 1, .holds_stop = true};
  Round round = running(3);
  CHECK(round(held) == Names{"failed 1"});
  CHECK(round(AllGone{}).empty());
  CHECK(round(WorkerExited{.local_rank = 2, .holds_stop = true}) == Names{"failed 2"});
  CHECK(round(StopRequested{}) == Names{"signal 15", "check"});
  CHECK(round(WorkerExited{.local_rank = 0, .before_stop = false}) == Names{"check"});
  CHECK(round(AllGone{}) == Names{"gone"});

  Round forgotten = running(2);
  CHECK(forgotten(held) == Names{"failed 1"});
  CHECK(forgotten.after(milliseconds(14'999)).empty());
  CHECK(forgotten.after(milliseconds(1)) == Names{"signal 15", "check"});

  Round killed = running(2);
  CHECK(killed(held) == Names{"failed 1"});
  CHECK(killed(KillRequested{}) == Names{"kill", "check"});

  Round last = running(2);
  CHECK(last(held) == Names{"failed 1"});
  CHECK(last(WorkerExited{.local_rank = 0, .succeeded = true}).empty());
  CHECK(last(StopRequested{}) == Names{"signal 15", "check"});
  CHECK(last(AllGone{}) == Names{"gone"});
}

TEST_CASE("a worker exit is a failure only if it was seen before the stop signal") {
  Round round = running(3);
  round(kBad0);
  CHECK(round(WorkerExited{.local_rank = 2}) == Names{"failed 2"});
  CHECK(round(kStopped1) == Names{"check"});
}

TEST_CASE("workers that do not exit are killed at the shared deadline") {
  Round round = running(2, milliseconds(200));
  CHECK(round(StopRequested{2}) == Names{"signal 2", "check"});
  CHECK(round.after(milliseconds(199)).empty());
  CHECK(round.after(milliseconds(1)) == Names{"kill", "check"});
  CHECK(round(AllGone{}).empty());  // not yet: two workers must be reaped first
  CHECK(round(kStopped1).empty());
  CHECK(round(WorkerExited{.before_stop = false}) == Names{"check"});
  CHECK(round(AllGone{}) == Names{"gone"});
}

TEST_CASE("the deadline of a stop does not change when every worker has exited before it") {
  Round round = running(1, milliseconds(30'000));
  round(StopRequested{});
  round.now += milliseconds(150);
  CHECK(round(WorkerExited{.before_stop = false}) == Names{"check"});
  CHECK(round.after(milliseconds(29'849)).empty());
  SECTION("a leftover process needs all of the time") {
    CHECK(round.after(milliseconds(1)) == Names{"kill", "check"});
  }
  SECTION("no process is left") { CHECK(round(AllGone{}) == Names{"gone"}); }
}

TEST_CASE("a shutdown timeout of 0 kills at once") {
  Round stopped = running(2, milliseconds(0));
  CHECK(stopped(StopRequested{}) == Names{"kill", "check"});
  Round failed = running(2, milliseconds(0));
  CHECK(failed(kBad0) == Names{"kill", "check", "failed 0"});
}

TEST_CASE("a kill request skips the wait in every phase") {
  Round round = running(2);
  const int before = GENERATE(0, 1, 2);
  if (before == 1) round(StopRequested{});
  if (before == 2) round(kGood0), round(kGood1);
  CHECK(round(KillRequested{}) == Names{"kill", "check"});
  CHECK(round(KillRequested{}).empty());
}

TEST_CASE("only the first stop request counts") {
  Round round = running(2);
  CHECK(round(StopRequested{15}) == Names{"signal 15", "check"});
  CHECK(round(StopRequested{2}).empty());
}

TEST_CASE("a kill is repeated and given up after its limit") {
  Round round = running(1);
  round(KillRequested{});
  int kills = 0;
  Names last;
  while (last != Names{"gave up"}) {
    last = round.after(milliseconds(50));
    if (last == Names{"kill", "check"}) ++kills;
    REQUIRE(round.now - kStart <= milliseconds(30'000));
  }
  CHECK(kills == 599);
  CHECK(round(WorkerExited{.before_stop = false}).empty());  // exits after all
  CHECK(round(Started{1}).empty());
}

TEST_CASE("a round is gone exactly once, with no process left, in any order of events") {
  const auto seed = GENERATE(range(0u, 300u));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto chance = [&random](int percent) { return static_cast<int>(random() % 100) < percent; };
  const int workers = 1 + static_cast<int>(random() % 6);
  const LeftoverPolicy policy = GENERATE(LeftoverPolicy::Wait, LeftoverPolicy::Kill);
  Round round = running(workers, milliseconds(random() % 3 == 0 ? 0 : 200), policy);
  std::vector<int> alive(static_cast<std::size_t>(workers));
  for (int rank = 0; rank < workers; ++rank) alive[static_cast<std::size_t>(rank)] = rank;
  bool was_told = false;
  bool any_orphan = chance(50);
  int gone = 0;
  int successes = 0;
  std::vector<int> failures;
  std::vector<int> reported;

  const auto feed = [&](const Event& event) {
    for (const Action& action : step(round.state, event, round.now)) {
      if (std::holds_alternative<SignalAll>(action)) was_told = true;
      if (std::holds_alternative<KillAll>(action)) was_told = true, any_orphan = false;
      if (std::holds_alternative<ReportSuccess>(action)) ++successes;
      if (const auto* one = std::get_if<ReportFailure>(&action))
        reported.push_back(one->local_rank);
      if (std::holds_alternative<ReportGone>(action)) ++gone;
    }
  };
  for (int steps = 0; gone == 0 && steps < 5'000; ++steps) {
    const bool killing = round.state.phase == Phase::Killing;
    if (!alive.empty() && (killing || chance(10))) {
      std::swap(alive[random() % alive.size()], alive.back());
      const WorkerExited ended{.local_rank = alive.back(),
                               .succeeded = !was_told && chance(70),
                               .before_stop = !was_told};
      alive.pop_back();
      if (ended.before_stop && !ended.succeeded) failures.push_back(ended.local_rank);
      feed(ended);
    }
    if (chance(2)) feed(StopRequested{});
    if (chance(1)) feed(KillRequested{});
    if (alive.empty() && !any_orphan) feed(AllGone{});
    if (chance(30)) {
      round.now += milliseconds(random() % 40);
      feed(DeadlinePassed{});
    }
  }
  CHECK(gone == 1);
  CHECK(alive.empty());
  CHECK_FALSE(any_orphan);
  CHECK(reported == failures);
  CHECK(successes <= 1);
  CHECK((successes == 0 || failures.empty()));
}

TEST_CASE("a notice delays the stop of the workers by its duration") {
  Round round = running(2);
  CHECK(round(StopRequested{SIGUSR1, milliseconds(60'000)}) ==
        Names{"notify " + std::to_string(SIGUSR1), "check"});
  CHECK(deadline(round.state) == round.now + milliseconds(60'000));
  CHECK(round(WorkerExited{.local_rank = 0, .succeeded = false, .before_stop = false}).empty());
  CHECK(round.after(milliseconds(59'999)).empty());
  CHECK(round.after(milliseconds(1)) == Names{"signal 15", "check"});
  CHECK(round.after(milliseconds(30'000)) == Names{"kill", "check"});
}

TEST_CASE("the round ends once all workers have exited after a notice") {
  Round round = running(2);
  round(StopRequested{SIGUSR1, milliseconds(60'000)});
  CHECK(round(WorkerExited{.local_rank = 0, .succeeded = true, .before_stop = false}).empty());
  CHECK(round(WorkerExited{.local_rank = 1, .succeeded = false, .before_stop = false}) ==
        Names{"check"});
  CHECK(round(AllGone{}) == Names{"gone"});
  CHECK_FALSE(deadline(round.state));
}

TEST_CASE(
    "a failure seen before the notice was sent is reported; a stop or kill cuts the notice short") {
  Round round = running(2);
  round(StopRequested{SIGUSR1, milliseconds(60'000)});
  CHECK(round(WorkerExited{.local_rank = 1, .succeeded = false}) == Names{"failed 1"});
  CHECK(round(StopRequested{SIGINT}) == Names{"signal 2", "check"});
  CHECK(round(StopRequested{SIGUSR1, milliseconds(60'000)}).empty());
  Round other = running(2);
  other(StopRequested{SIGUSR1, milliseconds(60'000)});
  CHECK(other(KillRequested{}) == Names{"kill", "check"});
}

}  // namespace drun::agent::worker_group
