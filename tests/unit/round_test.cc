#include "rendezvous/coordinator/round.h"

#include <algorithm>
#include <csignal>
#include <functional>

#include "rendezvous/protocol/control_wire.h"
#include "tests/support/catch.h"
#include "tests/support/round_driver.h"

namespace drun::rendezvous {
namespace {

using test::aged_failure;
using test::fixed_spec;
using test::RoundDriver;
using test::running_round;
using namespace std::chrono_literals;

template <typename T>
T ending_of(const RoundDriver& round, Peer peer) {
  const auto finishes = round.sent<Finish>(peer);
  REQUIRE(finishes.size() == 1);
  REQUIRE(std::holds_alternative<T>(finishes[0].outcome.ending));
  return std::get<T>(finishes[0].outcome.ending);
}

void stop_all(RoundDriver& round, std::vector<AgedFailure> failures_of_first = {}) {
  const int current = round.state.round;
  for (int node = 0; node < round.state.spec.node_count; ++node)
    round.receive(RoundDriver::peer(node),
                  Stopped{current, node == 0 ? failures_of_first : std::vector<AgedFailure>(), 0});
}

// Sends one event of each kind, selected by number.
void provoke(RoundDriver& round, int event) {
  const Peer peer = RoundDriver::peer(1);
  const std::vector<std::function<void()>> events = {
      [&round] {
        round.event(PeerArrived{900, "x", Ping{}});
      },
      [&round, peer] { round.receive(peer, round.hello(1)); },
      [&round, peer] {
        round.receive(peer, Failed{0, aged_failure(1)});
      },
      [&round, peer] {
        round.receive(peer, Failed{1, aged_failure(1)});
      },
      [&round, peer] { round.receive(peer, AllReturned{0}); },
      [&round, peer] {
        round.receive(peer, Stopped{0, {}, 0});
      },
      [&round, peer] {
        round.receive(peer, Stopped{0, {aged_failure(1)}, 0});
      },
      [&round, peer] { round.receive(peer, Signaled{2}); },
      [&round, peer] { round.receive(peer, Ping{}); },
      [&round, peer] { round.receive(peer, Query{.kind = QueryKind::Stacks}); },
      [&round, peer] {
        round.receive(peer, NodeAnswer{1, "x"});
      },
      [&round, peer] {
        round.receive(peer, HangSuspected{0, Milliseconds(100), {}});
      },
      [&round] { round.receive(12345, Ping{}); },  // an unknown peer
      [&round, peer] { round.leave(peer); },
      [&round] { round.event(RoundTick{}); },
  };
  events[static_cast<std::size_t>(event)]();
}

}  // namespace

TEST_CASE("nodes may join in any order, and ranks are contiguous by node rank") {
  std::vector<int> order = {0, 1, 2, 3};
  do {
    RoundDriver round(fixed_spec(4));
    for (const int node : order) {
      CHECK(round.state.phase == RoundPhase::Joining);
      Hello hello = round.hello(node);
      hello.local_world_size = node + 1;
      hello.role = node % 2 == 0 ? "even" : "odd";
      round.join(RoundDriver::peer(node), hello);
    }
    const std::vector<int> base = {0, 1, 3, 6};
    const std::vector<int> role_base = {0, 0, 1, 2};
    for (int node = 0; node < 4; ++node) {
      const auto ready = round.sent<WorldReady>(RoundDriver::peer(node));
      REQUIRE(ready.size() == 1);
      const World& world = ready[0].world;
      const auto index = static_cast<std::size_t>(node);
      CHECK(world.node_rank == node);
      CHECK(world.base_rank == base[index]);
      CHECK(world.local_world_size == node + 1);
      CHECK(world.world_size == 10);
      CHECK(world.role_base_rank == role_base[index]);
      CHECK(world.role_world_size == (node % 2 == 0 ? 4 : 6));
      CHECK(world.round == 0);
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("a fault is forwarded to all members only while its round runs") {
  RoundDriver round = running_round(3, 1);
  const Peer peer = RoundDriver::peer(1);
  const FaultInjected told{{.fault = "kill:node=1@1s", .time = WallTime{}, .round = 0}};
  round.receive(peer, told);
  for (int node = 0; node < 3; ++node) {
    const auto faults = round.sent<FaultInjected>(RoundDriver::peer(node));
    REQUIRE(faults.size() == 1);
    CHECK(faults[0].fault.fault == "kill:node=1@1s");
    CHECK(faults[0].fault.node_rank == 1);
  }
  round.receive(RoundDriver::peer(0), Failed{0, aged_failure(0)});
  round.receive(peer, told);
  CHECK(round.message_count() == 0);
  stop_all(round, {aged_failure(0)});
  REQUIRE(round.state.round == 1);
  round.receive(peer, told);
  CHECK(round.message_count() == 0);
  FaultInjected next = told;
  next.fault.round = 1;
  round.receive(peer, next);
  CHECK(round.sent<FaultInjected>(RoundDriver::peer(2)).size() == 1);
  next.fault.round = 2;
  round.receive(peer, next);
  CHECK(round.dropped(peer));
}

TEST_CASE("with several programs workers are counted by role over all nodes") {
  RoundDriver round(fixed_spec(3));
  const std::vector<std::vector<RoleShare>> roles = {
      {{"server", 1}, {"worker", 2}}, {}, {{"worker", 1}, {"server", 1}, {"worker", 1}}};
  for (const int node : {2, 0, 1}) {
    Hello hello = round.hello(node);
    hello.local_world_size = 3;
    hello.role = "worker";
    hello.roles = roles[static_cast<std::size_t>(node)];
    round.join(RoundDriver::peer(node), hello);
  }
  const std::vector<std::vector<WorkerRole>> expected = {
      {{"server", 0, 2}, {"worker", 0, 7}, {"worker", 1, 7}},
      {{"worker", 2, 7}, {"worker", 3, 7}, {"worker", 4, 7}},
      {{"worker", 5, 7}, {"server", 1, 2}, {"worker", 6, 7}}};
  for (int node = 0; node < 3; ++node) {
    const auto ready = round.sent<WorldReady>(RoundDriver::peer(node));
    REQUIRE(ready.size() == 1);
    const World& world = ready[0].world;
    CHECK(world.base_rank == 3 * node);
    CHECK(world.world_size == 9);
    CHECK(world.local_world_size == 3);
    for (int local_rank = 0; local_rank < 3; ++local_rank)
      CHECK(role_of(world, local_rank) ==
            expected[static_cast<std::size_t>(node)][static_cast<std::size_t>(local_rank)]);
  }
}

TEST_CASE("the store is emptied before any node gets the new world") {
  RoundDriver round = running_round(2, 1);
  round.receive(RoundDriver::peer(1), Failed{0, aged_failure(1)});
  stop_all(round);
  const auto is_clear = [](const RoundAction& a) { return std::holds_alternative<ClearStore>(a); };
  const auto is_send = [](const RoundAction& a) { return std::holds_alternative<SendTo>(a); };
  const auto clear = std::find_if(round.actions.begin(), round.actions.end(), is_clear);
  const auto send = std::find_if(round.actions.begin(), round.actions.end(), is_send);
  REQUIRE(send != round.actions.end());
  CHECK(clear < send);
  CHECK(round.sent<WorldReady>(RoundDriver::peer(0)).at(0).world.round == 1);
}

TEST_CASE("a node that does not fit is refused with the reason, and the others keep waiting") {
  RoundDriver round(fixed_spec(3));
  round.join(0);
  Hello hello = round.hello(1);
  const auto [what, words] = GENERATE(table<std::string, std::string>(
      {{"rank", "node rank 0 is taken by host host0 (pid 1000)"},
       {"nnodes", "--nnodes=4, but the coordinator with --nnodes=3"},
       {"run id", "run id \"other\", but this is run id \"job-1\""},
       {"range", "node rank 3 is out of range: --nnodes=3"},
       {"no rank", "names no node rank"},
       {"workers", "--nproc_per_node=0"}}));
  if (what == "rank") hello.node_rank = 0;
  if (what == "nnodes") hello.node_count = 4;
  if (what == "run id") hello.run_id = "other";
  if (what == "range") hello.node_rank = 3;
  if (what == "no rank") hello.node_rank.reset();
  if (what == "workers") hello.local_world_size = 0;
  round.join(7, hello);
  const auto refused = round.sent<Refused>(7);
  REQUIRE(refused.size() == 1);
  CHECK_THAT(refused[0].error.message,
             ContainsSubstring(words) && ContainsSubstring("10.0.0.1:29500 refused"));
  CHECK_THAT(round.log(), ContainsSubstring(words));
  CHECK(round.dropped(7));
  CHECK(round.state.phase == RoundPhase::Joining);
  round.join(1);
  round.join(2);
  CHECK(round.state.phase == RoundPhase::Running);
}

TEST_CASE("a member that reconnects while the world is joining gets its place back") {
  RoundDriver round(fixed_spec(2));
  round.join(1);
  round.join(50, round.hello(1));  // its old connection is still open
  CHECK(round.dropped(RoundDriver::peer(1)));
  CHECK(round.sent<Welcome>(50).size() == 1);
  round.leave(RoundDriver::peer(1));  // belated, and without effect
  round.join(0);
  CHECK(round.sent<WorldReady>(50).size() == 1);
  CHECK(round.sent<WorldReady>(50)[0].world.world_size == 4);
}

TEST_CASE("a probe gets objections without joining, and recognizes its own coordinator") {
  RoundDriver round(fixed_spec(2));
  Hello probe = round.hello(0);
  probe.is_probe = true;
  const bool has_master = GENERATE(false, true);
  if (has_master) round.join(0);
  round.join(50, probe);
  CHECK(round.sent<Refused>(50).at(0).error.code == ErrorCode::Closed);
  CHECK(round.dropped(50));
  CHECK(round.log().empty());
  if (!has_master) round.join(0);
  probe.instance = 9;
  round.join(51, probe);
  CHECK(round.sent<Refused>(51).at(0).error.code == ErrorCode::Refused);
  CHECK_THAT(round.log(), ContainsSubstring("node rank 0 is taken"));
  CHECK(round.state.line.size() == 1);
}

TEST_CASE("a node that leaves while joining may return or be replaced") {
  RoundDriver round(fixed_spec(2));
  round.join(1);
  round.leave(RoundDriver::peer(1));
  round.join(0);
  CHECK(round.state.phase == RoundPhase::Joining);
  Hello other = round.hello(1);
  other.instance = 77;
  round.join(60, other);
  CHECK(round.state.phase == RoundPhase::Running);
}

TEST_CASE("every 10 s all joined nodes get the list of missing nodes") {
  RoundDriver round(fixed_spec(30));
  for (int node = 10; node < 30; ++node) round.join(node);
  round.wait(10s);
  const auto waiting = round.sent<Waiting>(RoundDriver::peer(12));
  REQUIRE(waiting.size() == 1);
  CHECK(waiting[0].joined_count == 20);
  CHECK(waiting[0].missing == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(waiting[0].joined.front() == NodeName{10, "host10"});
  round.wait(1s);
  CHECK(round.sent<Waiting>(RoundDriver::peer(12)).empty());
}

TEST_CASE("after the join timeout all nodes get the list of missing nodes") {
  RoundSpec spec = fixed_spec(3);
  spec.heartbeat_timeout = 1h;
  RoundDriver round(spec);
  round.join(0);
  round.wait(15min - 1ms);
  CHECK(round.state.phase == RoundPhase::Joining);
  round.wait(1ms);
  const NotRun not_run = ending_of<NotRun>(round, RoundDriver::peer(0));
  CHECK(not_run.error.code == ErrorCode::Timeout);
  CHECK_THAT(not_run.error.message,
             ContainsSubstring("1 of 3 nodes") && ContainsSubstring("15m") &&
                 ContainsSubstring("node 1, node 2 missing (joined: node 0 (host0))"));
  round.join(1);
  CHECK(round.sent<Refused>(RoundDriver::peer(1)).at(0).error.code == ErrorCode::Closed);
}

TEST_CASE("the job succeeds only when every node has reported success") {
  RoundDriver round = running_round(3);
  round.receive(RoundDriver::peer(1), AllReturned{0});
  round.receive(RoundDriver::peer(1), AllReturned{0});
  round.receive(RoundDriver::peer(0), AllReturned{0});
  CHECK(round.state.phase == RoundPhase::Running);
  round.now += 5s;
  round.receive(RoundDriver::peer(2), AllReturned{0});
  ending_of<Succeeded>(round, RoundDriver::peer(0));
  const Outcome outcome = round.sent<Finish>(RoundDriver::peer(2)).at(0).outcome;
  CHECK(outcome.duration == 5s);
  CHECK(outcome.world_size == 6);
  CHECK(outcome.restarts == 0);
  for (int node = 0; node < 3; ++node) {
    CHECK(round.count<RoundOver>() == 0);
    round.leave(RoundDriver::peer(node));
  }
  CHECK(round.count<RoundOver>() == 1);
}

TEST_CASE("a failure stops every node at once, including the reporter") {
  RoundDriver round = running_round(3);
  round.receive(RoundDriver::peer(1), Failed{0, aged_failure(1)});
  for (int node = 0; node < 3; ++node) {
    const auto stops = round.sent<Stop>(RoundDriver::peer(node));
    REQUIRE(stops.size() == 1);
    CHECK(stops[0].round == 0);
    CHECK(stops[0].cause == "rank 2 on node 1 (host1) failed: exit code 3");
  }
}

TEST_CASE("restarts are counted once per job, up to the limit") {
  const int limit = GENERATE(0, 1, 3);
  RoundDriver round = running_round(3, limit);
  for (int restart = 0; restart < limit; ++restart) {
    // Failures on several nodes in one round use one restart.
    round.receive(RoundDriver::peer(1), Failed{restart, aged_failure(1)});
    round.receive(RoundDriver::peer(2), Failed{restart, aged_failure(2)});
    stop_all(round);
    REQUIRE(round.state.phase == RoundPhase::Running);
    CHECK(round.sent<WorldReady>(RoundDriver::peer(2)).at(0).world.round == restart + 1);
  }
  round.receive(RoundDriver::peer(0), Failed{limit, aged_failure(0)});
  stop_all(round);
  const WorkersFailed failed = ending_of<WorkersFailed>(round, RoundDriver::peer(2));
  CHECK(failed.failures.size() == 1);
  CHECK(failed.failures[0].round == limit);
  CHECK(round.sent<Finish>(RoundDriver::peer(1)).at(0).outcome.restarts == limit);
}

TEST_CASE("a job that repeats the same start-up failure ends before its restarts are used") {
  RoundDriver round = running_round(3, 100);
  round.state.spec.restart.max_same_failures = 3;
  for (int failure = 0; failure < 3; ++failure) {
    REQUIRE(round.state.phase == RoundPhase::Running);
    round.receive(RoundDriver::peer(1), Failed{failure, aged_failure(1)});
    stop_all(round);
  }
  const Outcome outcome = round.sent<Finish>(RoundDriver::peer(0)).at(0).outcome;
  CHECK(std::holds_alternative<WorkersFailed>(outcome.ending));
  CHECK(outcome.restarts == 2);
}

namespace {

// Rank 1 fails, and node 2 has reported `progress` in the round.
void fail_after(RoundDriver& round, const WorkProgress& progress) {
  const int current = round.state.round;
  round.receive(RoundDriver::peer(1), Failed{current, aged_failure(1)});
  for (int node = 0; node < 3; ++node) {
    Stopped stopped{.round = current};
    if (node == 2) stopped.progress = progress;
    round.receive(RoundDriver::peer(node), stopped);
  }
}

}  // namespace

TEST_CASE(
    "with restarts per progress a higher step restores all restarts, and a repeated step none") {
  RoundDriver round = running_round(3, 2);
  round.state.spec.restart.per_progress = true;
  for (std::uint64_t step = 1; step <= 20; ++step) fail_after(round, {.step = step});
  REQUIRE(round.state.phase == RoundPhase::Running);
  CHECK(round.state.restarts.size() == 20);
  fail_after(round, {.step = 20});
  REQUIRE(round.state.phase == RoundPhase::Running);
  fail_after(round, {.step = 7});
  CHECK(round.sent<Finish>(RoundDriver::peer(0)).at(0).outcome.restarts == 21);
  CHECK_THAT(round.log(), ContainsSubstring("all 2 restarts since the last progress are used"));
}

TEST_CASE("a lost node or a signal ends the job even if progress then allows another restart") {
  RoundDriver round = running_round(3, 1);
  round.state.spec.restart.per_progress = true;
  fail_after(round, {});
  REQUIRE(round.state.phase == RoundPhase::Running);
  round.receive(RoundDriver::peer(1), Failed{1, aged_failure(1)});
  const bool is_lost = GENERATE(true, false);
  if (is_lost)
    round.leave(RoundDriver::peer(2));
  else
    round.receive(RoundDriver::peer(2), Signaled{15});
  const bool made_progress = GENERATE(true, false);
  Stopped stopped{.round = 1};
  if (made_progress) stopped.progress.step = 7;
  round.receive(RoundDriver::peer(0), stopped);
  round.receive(RoundDriver::peer(1), Stopped{.round = 1});
  if (!is_lost) round.receive(RoundDriver::peer(2), Stopped{.round = 1});
  if (!made_progress)
    ending_of<WorkersFailed>(round, RoundDriver::peer(0));
  else if (is_lost)
    CHECK(ending_of<NodeLost>(round, RoundDriver::peer(0)).node_rank == 2);
  else
    CHECK(ending_of<Interrupted>(round, RoundDriver::peer(0)).node_rank == 2);
}

TEST_CASE("the pause after each start-up failure is twice as long as the last") {
  RoundDriver round = running_round(3, 100);
  round.state.spec.restart.startup_pause = 1s;
  for (const std::chrono::milliseconds pause : {1s, 2s, 4s}) {
    round.receive(RoundDriver::peer(1), Failed{round.state.round, aged_failure(1)});
    stop_all(round);
    REQUIRE(round.state.phase == RoundPhase::Pausing);
    CHECK(round.state.resume_at - round.now >= pause);
    CHECK(round.state.resume_at - round.now <= pause * 5 / 4);
    round.now = round.state.resume_at;
    round.event(RoundTick{});
    REQUIRE(round.state.phase == RoundPhase::Running);
  }
}

TEST_CASE("a kill from outside between start-up failures is followed by a restart at once") {
  RoundDriver round = running_round(3, 100);
  round.state.spec.restart.startup_pause = 1s;
  const auto fail = [&round](const ExitStatus& status) {
    AgedFailure failure = aged_failure(1);
    failure.failure.status = status;
    round.receive(RoundDriver::peer(1), Failed{round.state.round, failure});
    stop_all(round);
  };
  fail(Exited{3});
  REQUIRE(round.state.phase == RoundPhase::Pausing);
  round.now = round.state.resume_at;
  round.event(RoundTick{});
  fail(Killed{SIGKILL});
  CHECK(round.state.phase == RoundPhase::Running);
  fail(Exited{4});
  REQUIRE(round.state.phase == RoundPhase::Pausing);
  CHECK(round.state.resume_at - round.now >= 2s);
}

TEST_CASE("before the job's deadline its workers get a notice, and the job ends as preempted") {
  RoundDriver round = running_round(3, 100);
  const Time signal_at = round.now + 10s;
  round.event(DeadlineKnown{JobDeadline{signal_at, signal_at + 28s, 10, "its time limit ends"}});
  CHECK(deadline(round.state) <= signal_at);
  round.now = signal_at - 1ms;
  round.event(RoundTick{});
  CHECK(round.state.phase == RoundPhase::Running);
  round.now = signal_at;
  round.event(RoundTick{});
  for (int node = 0; node < 3; ++node) {
    const auto stops = round.sent<Stop>(RoundDriver::peer(node));
    REQUIRE(stops.size() == 1);
    CHECK(stops[0].notice == StopNotice{10, 28s});
  }
  // Workers that save their state and exit with an error have not failed.
  round.receive(RoundDriver::peer(1), Stopped{0, {aged_failure(1)}, 0});
  round.receive(RoundDriver::peer(0), Stopped{0, {}, 0});
  round.receive(RoundDriver::peer(2), Stopped{0, {}, 0});
  CHECK(ending_of<Preempted>(round, RoundDriver::peer(2)).reason == "its time limit ends");
}

TEST_CASE("a deadline that passes before the first node has joined ends the job then") {
  RoundDriver round(fixed_spec(3));
  round.event(DeadlineKnown{JobDeadline{round.now, round.now + 10s, 15, "soon"}});
  CHECK(deadline(round.state) > round.now);
  round.event(RoundTick{});
  CHECK(round.state.phase == RoundPhase::Joining);
  round.join(0);
  CHECK(deadline(round.state) <= round.now);
  round.event(RoundTick{});
  CHECK(ending_of<Preempted>(round, RoundDriver::peer(0)).reason == "soon");
}

TEST_CASE("a changed deadline replaces the old one, and a deadline between rounds ends the job") {
  RoundDriver round = running_round(3, 100);
  round.event(DeadlineKnown{JobDeadline{round.now + 10s, round.now + 20s, 15, "soon"}});
  round.event(DeadlineKnown{JobDeadline{round.now + 1h, round.now + 2h, 15, "late"}});
  round.state.spec.restart.pause = 2h;
  round.state.spec.restart.most_pause = 2h;
  round.receive(RoundDriver::peer(1), Failed{0, aged_failure(1)});
  stop_all(round);
  REQUIRE(round.state.phase == RoundPhase::Pausing);
  round.now += 59min;
  round.event(RoundTick{});
  CHECK(round.state.phase == RoundPhase::Pausing);
  round.now += 1min;
  round.event(RoundTick{});
  CHECK(ending_of<Preempted>(round, RoundDriver::peer(0)).reason == "late");
}

TEST_CASE("the root cause is the earliest failure by age, with its full text") {
  RoundDriver round = running_round(3);
  round.now += 10s;
  round.receive(RoundDriver::peer(1), Failed{0, aged_failure(1)});
  round.now += 20ms;
  round.receive(RoundDriver::peer(2), Failed{0, aged_failure(2, 50ms)});  // reported late
  AgedFailure full = aged_failure(2, 60ms);
  full.failure.traceback = "why";
  round.receive(RoundDriver::peer(0), Stopped{0, {}, 0});
  round.receive(RoundDriver::peer(1), Stopped{0, {aged_failure(1, 30ms)}, 2});
  round.receive(RoundDriver::peer(2), Stopped{0, {full}, 0});
  const WorkersFailed failed = ending_of<WorkersFailed>(round, RoundDriver::peer(0));
  REQUIRE(failed.failures.size() == 2);
  CHECK(failed.failures[0].rank == 4);
  CHECK(failed.failures[0].traceback == "why");
  CHECK(failed.failures[0].node_rank == 2);
  CHECK(failed.failures[1].rank == 2);
  CHECK(round.sent<Finish>(RoundDriver::peer(1)).at(0).outcome.failures_left_out == 2);
}

TEST_CASE("wall clocks and the order of arrival do not change the root cause") {
  // Node 1 fails first, node 2 0.3 ms later, then node 0. Their wall clocks show the opposite
  // order, an hour apart: clocks differ and are set, and error files store whole seconds.
  const Time start = RoundDriver(test::fixed_spec(1)).now + 10s;
  struct EngineFact {
    int node = 0;
    Time seen;
    WallTime time;
  };
  const WallTime noon{std::chrono::hours(500'000)};
  std::vector<EngineFact> order{
      {0, start + 400us, noon - 1h}, {1, start, noon}, {2, start + 300us, noon - 2h}};
  do {
    RoundDriver round = running_round(3);
    round.now = start + 1ms;
    for (const EngineFact& told : order) {
      AgedFailure failure = aged_failure(
          told.node, std::chrono::duration_cast<std::chrono::microseconds>(round.now - told.seen));
      failure.failure.time = told.time;
      const auto frame = encode(MemberMessage(Failed{0, failure}));
      const auto sent = decode_member_message(std::string_view(frame).substr(4));
      REQUIRE(sent.has_value());
      round.receive(RoundDriver::peer(told.node), *sent);
      round.now += 5ms;
    }
    stop_all(round);
    for (int node = 0; node < 3; ++node) {
      const WorkersFailed failed = ending_of<WorkersFailed>(round, RoundDriver::peer(node));
      REQUIRE(failed.failures.size() == 3);
      CHECK(failed.failures[0].node_rank == 1);
      CHECK(failed.failures[1].node_rank == 2);
      CHECK(failed.failures[0].time == noon);  // as reported by the worker
    }
  } while (std::next_permutation(
      order.begin(), order.end(),
      [](const EngineFact& one, const EngineFact& other) { return one.node < other.node; }));
}

TEST_CASE("an age reaches back at most to the start of the round") {
  RoundDriver round = running_round(2);
  round.now += 1s;
  round.receive(RoundDriver::peer(0), Failed{0, aged_failure(0, 1s)});
  round.receive(RoundDriver::peer(1), Failed{0, aged_failure(1, 1000h)});
  CHECK(round.state.failures.first().rank == 0);
}

TEST_CASE("a lost node ends the job without using a restart") {
  const auto phase = GENERATE(RoundPhase::Running, RoundPhase::Stopping);
  RoundDriver round = running_round(3, 5);
  if (phase == RoundPhase::Stopping)
    round.receive(RoundDriver::peer(0), Failed{0, aged_failure(0)});
  round.leave(RoundDriver::peer(1));
  round.receive(RoundDriver::peer(0), Stopped{0, {aged_failure(0)}, 0});
  CHECK(round.state.phase == RoundPhase::Stopping);
  round.receive(RoundDriver::peer(2), Stopped{0, {}, 0});
  const NodeLost lost = ending_of<NodeLost>(round, RoundDriver::peer(2));
  CHECK(lost == NodeLost{1, "host1", false, "its connection closed"});
}

TEST_CASE("a node lost while the last round is stopped does not hide the failure") {
  RoundDriver round = running_round(2, 0);
  round.receive(RoundDriver::peer(0), Failed{0, aged_failure(0)});
  round.leave(RoundDriver::peer(0));
  round.receive(RoundDriver::peer(1), Stopped{0, {}, 0});
  CHECK(ending_of<WorkersFailed>(round, RoundDriver::peer(1)).failures.at(0).rank == 0);
}

TEST_CASE("a node that misses its heartbeats is lost, and one that pings is not") {
  RoundDriver round = running_round(2);
  for (int i = 0; i < 5; ++i) {
    round.now += 3750ms;
    round.receive(RoundDriver::peer(0), Ping{});
    CHECK(round.sent<Pong>(RoundDriver::peer(0)).size() == 1);
    round.event(RoundTick{});
  }
  CHECK(round.dropped(RoundDriver::peer(1)));
  CHECK(round.sent<Stop>(RoundDriver::peer(0)).size() == 1);
  round.receive(RoundDriver::peer(0), Stopped{0, {}, 0});
  CHECK(ending_of<NodeLost>(round, RoundDriver::peer(0)).reason == "no sign of life for 15s");
}

TEST_CASE("a coordinator that was itself suspended loses no node") {
  RoundDriver round = running_round(2);
  round.wait(1h);
  CHECK(round.state.phase == RoundPhase::Running);
  CHECK(round.actions.empty());
}

TEST_CASE("a signal to one agent ends the job on all nodes in every phase") {
  const auto when = GENERATE(RoundPhase::Joining, RoundPhase::Running, RoundPhase::Stopping);
  RoundDriver round(fixed_spec(3, 5));
  round.join(0);
  round.join(1);
  if (when != RoundPhase::Joining) round.join(2);
  if (when == RoundPhase::Stopping) round.receive(RoundDriver::peer(2), Failed{0, aged_failure(2)});
  round.receive(RoundDriver::peer(1), Signaled{15});
  if (when != RoundPhase::Joining) {
    CHECK(round.state.phase == RoundPhase::Stopping);
    stop_all(round);
  }
  CHECK(ending_of<Interrupted>(round, RoundDriver::peer(0)) == Interrupted{15, 1, "host1"});
  round.join(9, round.hello(2));
  CHECK(round.sent<Refused>(9).at(0).error.code == ErrorCode::Closed);
}

TEST_CASE(
    "messages from an old round are ignored, and messages from a future round close the "
    "connection") {
  RoundDriver round = running_round(2, 2);
  round.receive(RoundDriver::peer(0), Failed{0, aged_failure(0)});
  stop_all(round);
  REQUIRE(round.state.round == 1);
  round.receive(RoundDriver::peer(1), Failed{0, aged_failure(1)});
  CHECK(round.actions.empty());
  round.receive(RoundDriver::peer(1), AllReturned{0});
  round.receive(RoundDriver::peer(1), Stopped{0, {}, 0});
  CHECK(round.actions.empty());
  CHECK(round.state.phase == RoundPhase::Running);
  round.receive(RoundDriver::peer(1), AllReturned{2});
  CHECK(round.dropped(RoundDriver::peer(1)));
  CHECK(round.state.phase == RoundPhase::Stopping);
}

TEST_CASE("a member that breaks the protocol is dropped and counts as lost") {
  const int kind = GENERATE(0, 1, 2);
  RoundDriver round = running_round(2);
  if (kind == 0) round.receive(RoundDriver::peer(1), round.hello(1));
  if (kind == 1) round.receive(RoundDriver::peer(1), Stopped{0, {}, 0});           // unsolicited
  if (kind == 2) round.receive(RoundDriver::peer(1), Failed{0, aged_failure(0)});  // not its rank
  CHECK(round.dropped(RoundDriver::peer(1)));
  round.receive(RoundDriver::peer(0), Stopped{0, {}, 0});
  CHECK(ending_of<NodeLost>(round, RoundDriver::peer(0)).node_rank == 1);
}

TEST_CASE("a connection that does not begin with hello is dropped") {
  RoundDriver round(fixed_spec(2));
  round.event(PeerArrived{1, "10.0.0.9:1", Ping{}});
  CHECK(round.dropped(1));
  CHECK_THAT(round.log(), ContainsSubstring("10.0.0.9:1"));
  round.receive(1, round.hello(0));  // was already in flight
  CHECK(round.state.line.empty());
}

TEST_CASE("members that never read their outcome do not block the coordinator") {
  RoundDriver round = running_round(2);
  round.receive(RoundDriver::peer(0), AllReturned{0});
  round.receive(RoundDriver::peer(1), AllReturned{0});
  round.leave(RoundDriver::peer(0));
  CHECK(round.count<RoundOver>() == 0);
  round.wait(15s);
  CHECK(round.dropped(RoundDriver::peer(1)));
  CHECK(round.count<RoundOver>() == 1);
  CHECK_FALSE(deadline(round.state).has_value());
}

TEST_CASE("every event in every phase leaves the round consistent") {
  const auto phase = GENERATE(RoundPhase::Joining, RoundPhase::Running, RoundPhase::Stopping,
                              RoundPhase::Ending, RoundPhase::Over);
  const int event = GENERATE(range(0, 15));
  RoundDriver round(fixed_spec(3, 1));
  round.join(0);
  round.join(1);
  if (phase != RoundPhase::Joining) round.join(2);
  if (phase == RoundPhase::Stopping)
    round.receive(RoundDriver::peer(2), Failed{0, aged_failure(2)});
  if (phase == RoundPhase::Ending || phase == RoundPhase::Over) {
    for (int node = 0; node < 3; ++node) round.receive(RoundDriver::peer(node), AllReturned{0});
  }
  if (phase == RoundPhase::Over) {
    for (int node = 0; node < 3; ++node) round.leave(RoundDriver::peer(node));
  }
  REQUIRE(round.state.phase == phase);
  provoke(round, event);
  int present = 0;
  for (const RoundNode& node : round.state.nodes) present += node.is_lost ? 0 : 1;
  if (round.state.phase != RoundPhase::Over) CHECK(round.state.present_count == present);
  CHECK(round.state.pending_count >= 0);
  CHECK((round.state.phase == RoundPhase::Over) == !deadline(round.state).has_value());
  CHECK(round.state.phase >= phase);  // with restarts left over, the phase only moves forward here
  if (phase == RoundPhase::Over) CHECK(round.count<SendTo>() + round.count<SendAll>() == 0);
}

}  // namespace drun::rendezvous
