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

TEST_CASE("without rules every failure causes a restart, up to max_restarts") {
  const std::vector<Time> two = {kNow - 50h, kNow - 1s};
  CHECK(restarts({}, Exited{1}));
  CHECK_FALSE(restart_objection({}, 3, two, Killed{9}, kNow));
  CHECK(restart_objection({}, 2, two, Killed{9}, kNow) == "all 2 restarts are used");
  CHECK(restart_objection({}, 1, {two.data(), 1}, Killed{9}, kNow) == "the only restart is used");
  CHECK(restart_objection({}, 0, {}, Exited{1}, kNow) == "--max-restarts=0");
}

TEST_CASE("with a window only the restarts within it count") {
  const RestartPolicy policy{.window = 1h};
  const std::vector<Time> two = {kNow - 61min, kNow - 59min};
  CHECK_FALSE(restart_objection(policy, 2, two, Exited{1}, kNow));
  const RestartPolicy per_progress{.per_progress = true};
  CHECK(restart_objection(per_progress, 2, two, Exited{1}, kNow) ==
        "all 2 restarts since the last progress are used");
  CHECK(restart_objection(policy, 1, two, Exited{1}, kNow) == "the only restart within 1h is used");
}

TEST_CASE(
    "exit codes and signals are distinct, and a program that did not start has a shell's code") {
  const RestartPolicy policy{.only_on = ExitKinds{.codes = {42, 127}, .signals = {9}}};
  CHECK(restarts(policy, Exited{42}));
  CHECK(restarts(policy, Killed{9}));
  CHECK(restarts(policy, NotStarted{2}));
  CHECK_FALSE(restarts(policy, Exited{9}));
  CHECK_FALSE(restarts(policy, Exited{137}));
  CHECK_FALSE(restarts(policy, Killed{11}));
}

TEST_CASE("the option --no-restart-on overrides --restart-on") {
  const RestartPolicy policy{.only_on = ExitKinds{.codes = {1, 2}}, .never_on = {.codes = {2}}};
  CHECK(restarts(policy, Exited{1}));
  CHECK(restart_objection(policy, 1, {}, Exited{2}, kNow) == "--no-restart-on names it");
  CHECK(restart_objection(policy, 1, {}, Exited{3}, kNow) == "--restart-on does not name it");
}

TEST_CASE("restart rules may name the class of a fault, or all that a restart does not help") {
  const RoundFault desync{.name = "desync", .is_pointless = true};
  const RoundFault network{.name = "network"};
  const auto objection = [](const RestartPolicy& policy, const RoundFault& fault) {
    return restart_objection(policy, 1, {}, Exited{1}, kNow, fault).value_or("none");
  };
  const RestartPolicy only{.only_on = ExitKinds{.codes = {7}, .faults = {"network"}}};
  CHECK(objection(only, network) == "none");
  CHECK(objection(only, desync) == "--restart-on does not name it (desync)");
  const RestartPolicy never{.never_on = {.faults = {"desync"}}};
  CHECK(objection(never, network) == "none");
  CHECK(objection(never, desync) == "--no-restart-on names desync");
  const RestartPolicy pointless{.never_on = {.faults = {kPointless}}};
  CHECK(objection(pointless, network) == "none");
  CHECK(objection(pointless, desync) ==
        "--no-restart-on names pointless, and a restart does not help after desync");
  CHECK(objection(pointless, {}) == "none");
  CHECK(needs_fault(only));
  CHECK(needs_fault(never));
  CHECK_FALSE(needs_fault({.never_on = {.codes = {1}}}));
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

// The streak after the given failed rounds, which run for one second each.
FailureStreak streak_of(const RestartPolicy& policy, const std::vector<Failure>& failures) {
  FailureStreak streak;
  for (const Failure& failure : failures)
    streak = next_streak(streak, policy, {.failure = failure, .ran_for = 1s});
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

TEST_CASE("a cause is the exit status and the last line of the error, without numbers") {
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
  // What PyTorch writes after an error.
  const std::string note = "[rank0]: Compile with `TORCH_USE_CUDA_DSA` to enable assertions.";
  const std::string warning =
      "[rank0]:[W1127 07:16:02.272876963 ProcessGroupNCCL.cpp:1575] Warning: WARNING: "
      "destroy_process_group() was not called before program exit";
  const auto torch = [&](const std::string& error) {
    return failure(0, Exited{1}, {"[rank0]: " + error, note, "", warning});
  };
  CHECK(same(torch("ValueError: no"), failure(0, Exited{1}, {"ValueError: no"})));
  CHECK_FALSE(same(torch("ValueError: no"), torch("KeyError: 'loss'")));
  const auto group = [](const std::string& error) {
    return failure(0, Exited{1}, {"    | " + error, "    +------------------------------------"});
  };
  CHECK(same(group("ValueError: no"), group("ValueError: no")));
  CHECK_FALSE(same(group("ValueError: no"), group("KeyError: 'loss'")));
}

TEST_CASE(
    "a streak ends with another cause, a late failure or progress, but not with an outside "
    "signal") {
  const RestartPolicy policy;
  const Failure three = failure(0, Exited{3});
  CHECK(streak_of(policy, {three, three}).same_failures == 2);
  const FailureStreak other = streak_of(policy, {three, three, failure(0, Exited{4})});
  CHECK(other.same_failures == 1);
  CHECK(other.startup_failures == 3);
  const FailureStreak two = streak_of(policy, {three, three});
  CHECK(next_streak(two, policy, {.failure = three, .ran_for = 60s}) == FailureStreak{});
  const FailedRound further{.failure = three, .ran_for = 1s, .made_progress = true};
  CHECK(next_streak(two, policy, further) == FailureStreak{});
  const Failure killed = failure(0, Killed{9});
  CHECK(next_streak(two, policy, {.failure = killed, .ran_for = 1s}) == two);
  Failure out_of_memory = failure(0, Killed{9});
  out_of_memory.out_of_memory = true;
  CHECK(streak_of(policy, {out_of_memory, out_of_memory}).same_failures == 2);
  CHECK(streak_of(policy, {failure(0, Killed{11}), failure(0, Killed{11})}).same_failures == 2);
}

// One failed round: how long it ran, whether it made progress, and how it failed.
struct HistoryRound {
  std::chrono::milliseconds ran_for{0};
  bool made_progress = false;
  Failure failure{};
};

// Returns the number of rounds until the job ends, or all rounds.
std::size_t rounds_of(const RestartPolicy& policy, int most,
                      const std::vector<HistoryRound>& history) {
  FailureStreak streak;
  std::vector<Time> restarts;
  Time now = kNow;
  for (std::size_t i = 0; i < history.size(); ++i) {
    const HistoryRound& round = history[i];
    now += round.ran_for;
    if (round.made_progress && policy.per_progress) restarts.clear();
    streak = next_streak(
        streak, policy,
        {.failure = round.failure, .ran_for = round.ran_for, .made_progress = round.made_progress});
    if (restart_objection(policy, most, restarts, round.failure.status, now) ||
        streak_objection(policy, streak))
      return i + 1;
    restarts.push_back(now);
  }
  return history.size();
}

// tests/bench/restarts.py replays the same histories with processes.
TEST_CASE("in twenty histories of failures the job ends only when a restart cannot help") {
  const RestartPolicy usual{.startup_pause = 1s, .max_same_failures = 3};
  const auto is = [](Failure failure, std::chrono::milliseconds ran_for = 2s,
                     bool made_progress = false) {
    return HistoryRound{ran_for, made_progress, std::move(failure)};
  };
  const auto exits = [](int rank, const std::string& line, int code = 1) {
    return failure(rank, Exited{code}, {line});
  };
  const auto times = [](std::size_t count, const HistoryRound& round) {
    return std::vector<HistoryRound>(count, round);
  };
  Failure kernel_oom = failure(2, Killed{9});
  kernel_oom.out_of_memory = true;
  const HistoryRound import_error = is(exits(0, "ModuleNotFoundError: No module named 'apex'"));
  const HistoryRound bind_error = is(exits(0, "OSError: [Errno 98] Address already in use"));
  const HistoryRound init_error =
      is(exits(3, "DistNetworkError: connection to 10.0.0.7 timed out"));
  struct Row {
    const char* name;
    std::vector<HistoryRound> history;
    std::size_t rounds;  // expected rounds; the length of `history` if the job is not ended early
  };
  const std::vector<Row> rows = {
      {"missing module", times(6, import_error), 3},
      {"wrong path", times(6, is(failure(0, NotStarted{2}))), 3},
      {"syntax error", times(6, is(exits(0, "SyntaxError: invalid syntax"))), 3},
      {"unknown option", times(6, is(exits(0, "train.py: error: unknown option --lrr", 2))), 3},
      {"missing data", times(6, is(exits(1, "FileNotFoundError: '/data/train.bin'"))), 3},
      {"damaged checkpoint", times(6, is(exits(0, "RuntimeError: invalid magic number"), 40s)), 3},
      {"GPU memory exceeded at step 0", times(6, is(exits(2, "OutOfMemoryError: 9.2 GiB"), 50s)),
       3},
      {"host memory exceeded at step 0", times(6, is(kernel_oom, 30s)), 3},
      {"illegal instruction on every node", times(6, is(failure(0, Killed{4}))), 3},
      {"NaN at the same step after each start",
       {is(exits(0, "FloatingPointError: loss is nan at step 1000"), 50s, true),
        is(exits(0, "FloatingPointError: loss is nan at step 1000"), 50s),
        is(exits(0, "FloatingPointError: loss is nan at step 1000"), 50s),
        is(exits(0, "FloatingPointError: loss is nan at step 1000"), 50s),
        is(exits(0, "FloatingPointError: loss is nan at step 1000"), 50s)},
       4},
      {"GPU memory exceeded at a new step each time",
       times(5, is(exits(2, "OutOfMemoryError: 9.2 GiB"), 50s, true)), 5},
      {"GPU memory exceeded after hours", times(5, is(exits(2, "OutOfMemoryError: 9.2 GiB"), 2h)),
       5},
      {"a node that fails on another rank each time",
       {is(failure(0, Exited{1})), is(failure(1, Exited{1})), is(failure(2, Exited{1})),
        is(failure(3, Exited{1}))},
       4},
      {"network not ready at the start, twice", times(2, init_error), 2},
      {"port in use, twice", times(2, bind_error), 2},
      {"preempted workers", times(5, is(failure(0, Killed{15}))), 5},
      {"workers killed by an administrator", times(5, is(failure(1, Killed{9}))), 5},
      {"start-up failures with different causes",
       {bind_error, init_error, bind_error, init_error, bind_error},
       5},
      {"two failures, a good run, two failures",
       {import_error, import_error, is(exits(0, "ECC error"), 3h), import_error, import_error},
       5},
      {"failures every hour", times(6, is(failure(7, Killed{11}), 1h)), 6},
  };
  CHECK(rows.size() == 20);
  for (const Row& row : rows) {
    INFO(row.name);
    CHECK(rounds_of(usual, 5, row.history) == row.rounds);
  }
  const auto steady = times(100, is(failure(7, Killed{11}), 1h, true));
  RestartPolicy per_progress = usual;
  per_progress.per_progress = true;
  CHECK(rounds_of(usual, 5, steady) == 6);
  CHECK(rounds_of(per_progress, 5, steady) == 100);
}

TEST_CASE("the pause after start-up failures doubles, plus up to a quarter") {
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
