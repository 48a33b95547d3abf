#include "agent/status/phases.h"

#include <numeric>
#include <random>

#include "tests/support/catch.h"

namespace drun::agent {
namespace {

using namespace std::chrono_literals;

constexpr PhaseClock::Time kBegin{};

std::chrono::milliseconds sum_of(const PhaseTimes& times) {
  return std::accumulate(times.begin(), times.end(), 0ms);
}

}  // namespace

TEST_CASE("a node is in exactly one phase at any time") {
  PhaseClock clock(kBegin);
  CHECK(clock.current() == Phase::Waiting);
  CHECK(clock.enter(Phase::Spawn, kBegin + 2s));
  CHECK_FALSE(clock.enter(Phase::Spawn, kBegin + 3s));
  CHECK(clock.enter(Phase::Start, kBegin + 4s));
  CHECK(clock.enter(Phase::Running, kBegin + 9s));
  CHECK(clock.enter(Phase::Stopping, kBegin + 19s));
  const PhaseTimes times = clock.totals(kBegin + 20s);
  CHECK(times == PhaseTimes{2s, 2s, 0s, 5s, 10s, 1s, 0s, 0s});
  CHECK(sum_of(times) == 20s);
}

TEST_CASE(
    "a round's workers count as running from the first output, and the last one to print is the "
    "slowest") {
  PhaseClock clock(kBegin);
  CHECK(clock.begin_round(kBegin + 1s));
  clock.begin_spawn(kBegin + 2s);
  CHECK(clock.end_spawn(kBegin + 3s));
  CHECK(clock.current() == Phase::Start);
  CHECK_FALSE(clock.times(kBegin + 3s).slowest_start);
  CHECK(clock.note_print(5, kBegin + 4s));
  CHECK(clock.current() == Phase::Running);
  CHECK_FALSE(clock.note_print(4, kBegin + 7s));
  CHECK(clock.times(kBegin + 8s).slowest_start == 4);
  CHECK(clock.times(kBegin + 8s).slowest_start_time == 5s);
  CHECK(clock.times(kBegin + 8s).phases == clock.totals(kBegin + 8s));

  SECTION("a worker prints before all are started") {
    CHECK(clock.begin_round(kBegin + 9s));
    CHECK_FALSE(clock.times(kBegin + 9s).slowest_start);
    clock.begin_spawn(kBegin + 9s);
    CHECK_FALSE(clock.note_print(4, kBegin + 10s));
    CHECK(clock.end_spawn(kBegin + 11s));
    CHECK(clock.current() == Phase::Running);
  }
  SECTION("the round is stopped before all are started") {
    CHECK(clock.begin_round(kBegin + 9s));
    CHECK(clock.enter(Phase::Stopping, kBegin + 10s));
    CHECK_FALSE(clock.end_spawn(kBegin + 11s));
    CHECK_FALSE(clock.note_print(4, kBegin + 11s));
    CHECK(clock.current() == Phase::Stopping);
  }
}

TEST_CASE("workers that never print count as running since their start") {
  PhaseClock clock(kBegin);
  clock.enter(Phase::Start, kBegin + 1s);
  CHECK(clock.totals(kBegin + 11s)[index_of(Phase::Start)] == 10s);
  const auto late = kBegin + 1s + kLongestSilentStart + 1s;
  CHECK(clock.totals(late)[index_of(Phase::Start)] == 0s);
  clock.enter(Phase::Stopping, kBegin + 20s);
  CHECK(clock.totals(kBegin + 20s)[index_of(Phase::Running)] == 19s);
}

TEST_CASE("phases sum to the elapsed time in any order") {
  std::mt19937 random(7);
  PhaseClock clock(kBegin);
  PhaseClock::Time now = kBegin;
  for (int i = 0; i < 10'000; ++i) {
    now += std::chrono::microseconds(random() % 5'000'000);
    clock.enter(static_cast<Phase>(random() % kPhaseCount), now);
    const auto passed = std::chrono::floor<std::chrono::milliseconds>(now - kBegin);
    const auto difference = passed - sum_of(clock.totals(now));
    CHECK((difference >= 0ms && difference <= std::chrono::milliseconds(kPhaseCount)));
  }
}

TEST_CASE("the wait for the outcome does not count as a restart") {
  PhaseClock clock(kBegin);
  clock.enter(Phase::Stopping, kBegin + 10s);
  clock.enter(Phase::Restarting, kBegin + 12s);
  CHECK(clock.final_totals(kBegin + 12s + 300ms) ==
        PhaseTimes{10s, 0s, 0s, 0s, 0s, 2300ms, 0s, 0s});
  CHECK(clock.final_totals(kBegin + 15s) == PhaseTimes{10s, 0s, 0s, 0s, 0s, 2s, 3s, 0s});
}

TEST_CASE("phases are found by their names") {
  for (std::size_t i = 0; i < kPhaseCount; ++i)
    CHECK(phase_named(word_of(static_cast<Phase>(i))) == static_cast<Phase>(i));
  CHECK_FALSE(phase_named("idle").has_value());
  CHECK_FALSE(phase_named("").has_value());
}

TEST_CASE("a job's time is the mean over its nodes, with the longest of each phase") {
  CHECK(JobTimesSum().total() == JobTimes{});
  JobTimesSum sum;
  sum.add(0, {.phases = {1s, 0s, 0s, 4s, 5s}});
  sum.add(2, {.phases = {3s, 0s, 0s, 2s, 5s}, .slowest_start = 9, .slowest_start_time = 6s});
  const JobTimes job = sum.total();
  CHECK(job.nodes == 2);
  CHECK(job.mean == PhaseTimes{2s, 0s, 0s, 3s, 5s});
  CHECK(job.longest[index_of(Phase::Waiting)] == LongestTime{3s, 2, {}});
  CHECK(job.longest[index_of(Phase::Start)] == LongestTime{6s, 2, 9});
  CHECK(job.longest[index_of(Phase::Running)] == LongestTime{5s, 0, {}});
  CHECK(job.longest[index_of(Phase::Spawn)] == LongestTime{});
}

}  // namespace drun::agent
