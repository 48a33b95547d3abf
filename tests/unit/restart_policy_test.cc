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
  CHECK(restart_objection({}, 0, {}, Exited{1}, kNow) == "--max-restarts=0");
}

TEST_CASE("in a window only the restarts within it count") {
  const RestartPolicy policy{.window = 1h};
  const std::vector<Time> two = {kNow - 61min, kNow - 59min};
  CHECK_FALSE(restart_objection(policy, 2, two, Exited{1}, kNow));
  CHECK(restart_objection(policy, 1, two, Exited{1}, kNow) == "all 1 restarts within 1h are used");
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

}  // namespace drun::rendezvous
