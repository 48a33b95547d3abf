#include "rendezvous/job/restart_policy.h"

#include "tests/support/catch.h"

namespace drun::rendezvous {
namespace {

using namespace std::chrono_literals;
using Time = std::chrono::steady_clock::time_point;

constexpr Time kNow{std::chrono::hours(100)};

bool restarts(const RestartPolicy& policy, const ExitStatus& status) {
  return !restart_objection(policy, 1, {}, status, kNow).has_value();
}

}  // namespace

TEST_CASE("without rules every failure is followed by a restart, as often as allowed") {
  const std::vector<Time> two = {kNow - 50h, kNow - 1s};
  CHECK(restarts({}, Exited{1}));
  CHECK_FALSE(restart_objection({}, 3, two, Killed{9}, kNow));
  CHECK(restart_objection({}, 2, two, Killed{9}, kNow) == "all 2 restarts are used");
  CHECK(restart_objection({}, 1, {two.data(), 1}, Killed{9}, kNow) == "the only restart is used");
  CHECK(restart_objection({}, 0, {}, Exited{1}, kNow) == "--max-restarts=0");
}

TEST_CASE("in a window only the restarts within it count") {
  const RestartPolicy policy{.window = 1h};
  const std::vector<Time> two = {kNow - 61min, kNow - 59min};
  CHECK_FALSE(restart_objection(policy, 2, two, Exited{1}, kNow));
  CHECK(restart_objection(policy, 1, two, Exited{1}, kNow) == "the only restart within 1h is used");
}

TEST_CASE("codes and signals are told apart, and what never ran has a shell's code") {
  const RestartPolicy policy{.only_on = ExitKinds{.codes = {42, 127}, .signals = {9}}};
  CHECK(restarts(policy, Exited{42}));
  CHECK(restarts(policy, Killed{9}));
  CHECK(restarts(policy, NotStarted{2}));
  CHECK_FALSE(restarts(policy, Exited{9}));
  CHECK_FALSE(restarts(policy, Exited{137}));
  CHECK_FALSE(restarts(policy, Killed{11}));
}

TEST_CASE("what must not be restarted is not, whatever else is allowed") {
  const RestartPolicy policy{.only_on = ExitKinds{.codes = {1, 2}}, .never_on = {.codes = {2}}};
  CHECK(restarts(policy, Exited{1}));
  CHECK(restart_objection(policy, 1, {}, Exited{2}, kNow) == "--no-restart-on names it");
  CHECK(restart_objection(policy, 1, {}, Exited{3}, kNow) == "--restart-on does not name it");
}

TEST_CASE("the pause before a restart doubles up to its limit") {
  const RestartPolicy policy{.pause = 2s, .most_pause = 10s};
  CHECK(pause_before(policy, 1) == 2s);
  CHECK(pause_before(policy, 2) == 4s);
  CHECK(pause_before(policy, 3) == 8s);
  CHECK(pause_before(policy, 4) == 10s);
  CHECK(pause_before(policy, 1'000'000'000) == 10s);
  CHECK(pause_before({}, 1'000'000'000) == 0s);
}

// What follows from a number of failed rounds, each after a second.
FailureStreak streak_of(const RestartPolicy& policy, const std::vector<Failure>& failures) {
  FailureStreak streak;
  for (const Failure& failure : failures) streak = next_streak(streak, policy, failure, 1s);
  return streak;
}

Failure failure(int rank, ExitStatus status, std::vector<std::string> stderr_tail = {}) {
  Failure failure;
  failure.rank = rank;
  failure.status = std::move(status);
  failure.stderr_tail = std::move(stderr_tail);
  return failure;
}

TEST_CASE("start-up failures with the same cause in a row end the job") {
  const RestartPolicy policy{.max_same_failures = 3};
  const Failure wrong_path = failure(0, Exited{2}, {"python: can't open file 'x.py'", ""});
  CHECK_FALSE(streak_objection(policy, streak_of(policy, {wrong_path, wrong_path})));
  const auto objection = streak_objection(policy, streak_of(policy, {3, wrong_path}));
  REQUIRE(objection);
  CHECK_THAT(*objection, ContainsSubstring("failed 3 times in a row within 1m of its start"));
  CHECK_FALSE(streak_objection({}, streak_of(policy, {100, wrong_path})));
}

TEST_CASE("a cause is the way a worker ended and the last line of its error, without numbers") {
  const auto same = [](const Failure& one, const Failure& other) {
    return is_same(cause_of(one), cause_of(other));
  };
  const Failure oom =
      failure(3, Exited{1}, {"step 4", "OutOfMemoryError: tried 12.5 GiB, pid 77\n"});
  CHECK(same(oom, failure(3, Exited{1}, {"OutOfMemoryError: tried 8.25 GiB, pid 1234"})));
  CHECK(same(oom, failure(1, Exited{1}, {"OutOfMemoryError: tried 8.25 GiB, pid 1234", "  "})));
  CHECK_FALSE(same(oom, failure(3, Exited{2}, {"OutOfMemoryError: tried 8.25 GiB, pid 1234"})));
  CHECK_FALSE(same(oom, failure(3, Exited{1}, {"ValueError: no"})));
  CHECK(same(failure(3, Exited{1}), failure(3, Exited{1})));
  CHECK_FALSE(same(failure(3, Exited{1}), failure(2, Exited{1})));
  CHECK(same(failure(3, Hung{"no output for 60 s"}), failure(3, Hung{"no output for 61 s"})));
  Failure with_error_file = failure(0, Exited{1}, {"Exception ignored in atexit"});
  with_error_file.message = "ValueError: no\n";
  CHECK(same(with_error_file, failure(0, Exited{1}, {"ValueError: no"})));
}

TEST_CASE(
    "a streak ends with another cause or a later failure, and not with a signal from outside") {
  const RestartPolicy policy;
  const Failure three = failure(0, Exited{3});
  CHECK(streak_of(policy, {three, three}).same_failures == 2);
  const FailureStreak other = streak_of(policy, {three, three, failure(0, Exited{4})});
  CHECK(other.same_failures == 1);
  CHECK(other.startup_failures == 3);
  const FailureStreak two = streak_of(policy, {three, three});
  CHECK(next_streak(two, policy, three, 60s) == FailureStreak{});
  CHECK(next_streak(two, policy, failure(0, Killed{9}), 1s) == two);
  Failure out_of_memory = failure(0, Killed{9});
  out_of_memory.out_of_memory = true;
  CHECK(streak_of(policy, {out_of_memory, out_of_memory}).same_failures == 2);
  CHECK(streak_of(policy, {failure(0, Killed{11}), failure(0, Killed{11})}).same_failures == 2);
}

TEST_CASE("the pause after failures at the start doubles, with up to a quarter more") {
  const RestartPolicy policy{.most_pause = 10s, .startup_pause = 1s};
  const auto pause = [&policy](int failures, std::size_t seed) {
    return pause_after(policy, FailureStreak{.startup_failures = failures}, seed);
  };
  CHECK(pause(0, 0) == 0s);
  CHECK(pause(1, 0) == 1s);
  CHECK(pause(2, 0) == 2s);
  CHECK(pause(3, 0) == 4s);
  CHECK(pause(1'000'000'000, 0) == 10s);
  for (std::size_t seed = 0; seed < 1000; ++seed) {
    CHECK(pause(1, seed) >= 1s);
    CHECK(pause(1, seed) <= 1250ms);
  }
  CHECK(pause(1, 7) != pause(1, 100));
  CHECK(pause_after({}, FailureStreak{.startup_failures = 4}, 7) == 0s);
}

}  // namespace drun::rendezvous
