#include "rendezvous/member/member.h"

#include <set>

#include "tests/support/catch.h"
#include "tests/support/member_driver.h"

namespace drun::rendezvous {
namespace {

using test::MemberDriver;
using namespace std::chrono_literals;
using Phase = MemberPhase;

constexpr Phase kAllPhases[] = {Phase::Dialing, Phase::Resting, Phase::Greeting, Phase::Joined,
                                Phase::Running, Phase::Done,    Phase::Stopping, Phase::Stopped,
                                Phase::Leaving, Phase::Ending,  Phase::Ended};

Failure failure_of(int rank) {
  Failure failure;
  failure.rank = rank;
  failure.status = Exited{3};
  failure.stderr_tail = {"last words"};
  failure.traceback = "why";
  return failure;
}

}  // namespace

TEST_CASE("a member can be brought into every phase") {
  for (const Phase phase : kAllPhases) CHECK(MemberDriver::in(phase).state.phase == phase);
}

TEST_CASE("an unreachable coordinator is retried with pauses that grow to at most 1 s") {
  MemberDriver member = MemberDriver::in(Phase::Dialing);
  for (const Milliseconds pause : {50ms, 100ms, 200ms, 400ms, 800ms, 1000ms, 1000ms}) {
    member.event(ConnectFailed{"connection refused (10.0.0.1)"});
    CHECK(member.state.phase == Phase::Resting);
    CHECK(deadline(member.state) >= member.now + pause / 2);
    CHECK(deadline(member.state) <= member.now + pause);
    member.wait(pause);
    CHECK(member.count<Connect>() == 1);
  }
}

TEST_CASE("the reason why the coordinator cannot be reached is logged ever less often") {
  MemberDriver member = MemberDriver::in(Phase::Dialing);
  std::string told;
  std::vector<Time::duration> times;
  while (member.state.phase != Phase::Ended) {
    if (member.state.phase == Phase::Dialing) member.event(ConnectFailed{"connection refused"});
    member.now = *deadline(member.state);
    member.event(MemberTick{});
    told += member.log(LogLevel::Info);
    if (!member.log(LogLevel::Info).empty())
      times.push_back(member.now - MemberDriver::start_time());
  }
  CHECK(times == std::vector<Time::duration>{10s, 60s, 360s, 660s});
  CHECK_THAT(told, ContainsSubstring("waiting for the coordinator at 10.0.0.1:29500: it cannot be "
                                     "reached yet: connection refused; 14m50s left"));
  CHECK(member.now == MemberDriver::start_time() + 15min);
  const Error error = std::get<NotRun>(member.outcome().ending).error;
  CHECK(error.code == ErrorCode::Timeout);
  CHECK_THAT(error.message, ContainsSubstring("10.0.0.1:29500 cannot be reached yet: connection "
                                              "refused; gave up after 15m"));
}

TEST_CASE(
    "a coordinator that closes connections or stays silent is retried until the join timeout") {
  const bool is_silent = GENERATE(false, true);
  const bool has_spoken = GENERATE(false, true);
  CAPTURE(is_silent, has_spoken);
  MemberDriver member = MemberDriver::in(Phase::Greeting);
  int tries = 1;
  while (member.state.phase != Phase::Ended) {
    if (member.state.phase == Phase::Dialing) {
      member.event(Connected{});
      ++tries;
    }
    if (member.state.phase == Phase::Greeting && !is_silent)
      member.event(ConnectionLost{"its connection was reset", has_spoken});
    member.now = deadline(member.state).value();
    member.event(MemberTick{});
  }
  CHECK(member.now == MemberDriver::start_time() + 15min);
  CHECK(tries >= (is_silent ? 80 : 800));
  const Error error = std::get<NotRun>(member.outcome().ending).error;
  CHECK(error.code == ErrorCode::Timeout);
  CHECK_THAT(error.message, ContainsSubstring("the coordinator at 10.0.0.1:29500 ") &&
                                ContainsSubstring("is overloaded") &&
                                ContainsSubstring("gave up after 15m"));
  if (is_silent) CHECK_THAT(error.message, ContainsSubstring("has not answered for 10s"));
  const bool may_be_foreign = is_silent || !has_spoken;
  CHECK((error.message.find("another program uses that port") != std::string::npos) ==
        may_be_foreign);
}

TEST_CASE("members that lose one coordinator reconnect at different times") {
  std::set<Time::duration> pauses;
  for (std::uint64_t instance = 1; instance <= 100; ++instance) {
    MemberSpec spec = MemberDriver().state.spec;
    spec.instance = instance * 0x9E3779B97F4A7C15U;
    MemberState state = new_member(spec);
    const Time now = MemberDriver::start_time();
    step(state, MemberStart{}, now);
    for (int i = 0; i < 6; ++i) {
      step(state, ConnectFailed{"connection refused"}, now);
      if (i < 5) step(state, MemberTick{}, state.retry_at);
    }
    pauses.insert(state.retry_at - now);
  }
  CHECK(pauses.size() > 50);
  CHECK(*pauses.begin() < 1000ms);
  CHECK(*pauses.rbegin() - *pauses.begin() > 300ms);
}

TEST_CASE("a foreign program at the endpoint ends the job at once") {
  MemberDriver member = MemberDriver::in(Phase::Greeting);
  member.event(WrongPeer{"is not a drun (its first bytes are \"HTTP/1.1\")"});
  const Error error = std::get<NotRun>(member.outcome().ending).error;
  CHECK(error.code == ErrorCode::Refused);
  CHECK_THAT(error.message, ContainsSubstring("10.0.0.1:29500 is not a drun") &&
                                ContainsSubstring("check --master_addr"));
}

TEST_CASE("an error about the endpoint names the option that an elastic job has for it") {
  MemberDriver member = MemberDriver::in(Phase::Greeting);
  member.state.spec.join.elastic = ElasticSpec{};
  member.event(WrongPeer{"is not a drun; does another program use this port?"});
  const Error error = std::get<NotRun>(member.outcome().ending).error;
  CHECK(error.message ==
        "10.0.0.1:29500 is not a drun; does another program use this port? check --rdzv-endpoint");
}

TEST_CASE("a refusal becomes the outcome") {
  MemberDriver member = MemberDriver::in(Phase::Greeting);
  member.receive(Refused{{ErrorCode::Refused, "rank taken"}});
  CHECK(member.outcome().ending == Ending(NotRun{{ErrorCode::Refused, "rank taken"}}));
  CHECK(member.state.phase == Phase::Ended);
}

TEST_CASE("a designated coordinator gives up if another coordinator exists, unless a world runs") {
  MemberDriver member = MemberDriver::in(Phase::Joined);
  member.event(OtherCoordinator{{ErrorCode::Refused, "rank 0 is taken"}});
  CHECK(member.outcome().ending == Ending(NotRun{{ErrorCode::Refused, "rank 0 is taken"}}));
  member = MemberDriver::in(Phase::Running);
  member.event(OtherCoordinator{{ErrorCode::Refused, "rank 0 is taken"}});
  CHECK(member.state.phase == Phase::Running);
}

TEST_CASE("workers get the master address and port that this node was given") {
  MemberDriver member = MemberDriver::in(Phase::Joined);
  World world = MemberDriver::world(0);
  world.master_addr = "localhost";
  world.master_port = 1;
  member.receive(WorldReady{world});
  CHECK(member.only<StartWorkers>().world.master_addr == "10.0.0.1");
  CHECK(member.only<StartWorkers>().world.master_port == 29500);
}

TEST_CASE("a member without a master port passes on the coordinator's") {
  MemberDriver member = MemberDriver::in(Phase::Joined);
  member.state.spec.join.master_port = 0;
  World world = MemberDriver::world(0);
  world.master_port = 4242;
  member.receive(WorldReady{world});
  CHECK(member.only<StartWorkers>().world.master_port == 4242);
}

TEST_CASE("a failure is reported at once in brief, and in full when all workers have exited") {
  MemberDriver member = MemberDriver::in(Phase::Running);
  member.event(OwnFailure{{failure_of(4), 7ms}});
  const Failed failed = member.sent<Failed>();
  CHECK(failed.round == 0);
  CHECK(failed.first.age == 7ms);
  CHECK(failed.first.failure.stderr_tail.empty());
  CHECK(failed.first.failure.traceback.empty());
  CHECK(member.count<StopWorkers>() == 0);
  member.event(OwnFailure{{failure_of(5), 0ms}});
  CHECK(member.actions.empty());  // only the first is reported
  member.receive(Stop{0, "rank 4 failed"});
  CHECK(member.count<StopWorkers>() == 0);  // they are already being stopped
  member.now += 100ms;
  member.event(OwnStopped{0, {{failure_of(5), 80ms}, {failure_of(4), 100ms}}});
  const auto stopped = member.sent<rendezvous::Stopped>();
  REQUIRE(stopped.failures.size() == 2);
  CHECK(stopped.failures[0].failure == failure_of(4));
  CHECK(stopped.failures[0].age == 107ms);
  CHECK(stopped.failures[1].age == 80ms);
}

TEST_CASE("a stop is shown once per job at the default level: by the first node") {
  for (const int node_rank : {0, 1, 2}) {
    MemberDriver member = MemberDriver::in(Phase::Running);
    member.state.world->node_rank = node_rank;
    member.receive(Stop{0, "rank 4 failed"});
    CHECK(member.log() == "stopping workers: rank 4 failed\n");
    CHECK(member.only<LogLine>().level == (node_rank == 0 ? LogLevel::Info : LogLevel::Debug));
  }
}

TEST_CASE(
    "a round that ended elsewhere stops the workers once, and the next round starts them again") {
  const auto phase = GENERATE(Phase::Running, Phase::Done);
  MemberDriver member = MemberDriver::in(phase);
  member.receive(Stop{0, "rank 0 failed"});
  CHECK(member.only<StopWorkers>().round == 0);
  member.receive(Stop{0, "rank 0 failed"});
  CHECK(member.actions.empty());
  const WorkProgress progress{.step = 1200};
  member.event(OwnStopped{.round = 0, .progress = progress});
  CHECK(member.sent<rendezvous::Stopped>().failures.empty());
  CHECK(member.sent<rendezvous::Stopped>().progress == progress);
  member.receive(WorldReady{MemberDriver::world(1)});
  CHECK(member.only<StartWorkers>().world.round == 1);
  member.event(OwnStopped{0, {}});  // late, from the old round
  member.event(OwnSuccess{0});
  member.receive(Stop{0, "old"});
  CHECK(member.state.phase == Phase::Running);
}

TEST_CASE("a world that cannot be the next one is treated as a broken coordinator") {
  MemberDriver member = MemberDriver::in(Phase::Stopped);
  World world = MemberDriver::world(0);  // that round has ended
  SECTION("a round that has ended") {}
  SECTION("the rank of another node") {
    world.round = 1;
    world.node_rank = 2;
  }
  SECTION("a different number of workers") {
    world.round = 1;
    world.local_world_size = 3;
  }
  member.receive(WorldReady{world});
  CHECK(member.count<StartWorkers>() == 0);
  CHECK_THAT(std::get<NodeLost>(member.outcome().ending).reason,
             ContainsSubstring("a world that is not ours"));
}

TEST_CASE("a lost coordinator is reported after the workers have stopped") {
  const auto phase = GENERATE(Phase::Running, Phase::Done, Phase::Stopping);
  const bool is_silence = GENERATE(false, true);
  MemberDriver member = MemberDriver::in(phase);
  if (is_silence)
    member.be_silent(20s);
  else
    member.event(ConnectionLost{"its connection was reset"});
  CHECK(member.state.phase == Phase::Ending);
  if (!is_silence) CHECK(member.count<StopWorkers>() == (phase == Phase::Stopping ? 0 : 1));
  CHECK(member.count<End>() == 0);
  member.event(OwnStopped{0, {}});
  const NodeLost lost = std::get<NodeLost>(member.outcome().ending);
  CHECK(lost.is_coordinator);
  CHECK(lost.host == "10.0.0.1");
  CHECK(lost.reason == (is_silence ? "no sign of life for 15s" : "its connection was reset"));
  CHECK(member.outcome().world_size == 6);
}

TEST_CASE("a failure on this node before the coordinator was lost is included in the report") {
  MemberDriver member = MemberDriver::in(Phase::Running);
  member.event(OwnFailure{{failure_of(4), 0ms}});
  member.event(OwnStopped{0, {{failure_of(4), 0ms}}});
  member.event(ConnectionLost{"its connection was reset"});
  CHECK_THAT(std::get<NodeLost>(member.outcome().ending).reason,
             ContainsSubstring("before that, rank 4 failed on this node: exit code 3"));
}

TEST_CASE("a member reconnects when the coordinator is lost before the world is complete") {
  MemberDriver member = MemberDriver::in(Phase::Joined);
  const bool is_silence = GENERATE(false, true);
  if (is_silence)
    member.be_silent(20s);
  else
    member.event(ConnectionLost{"its connection closed"});
  CHECK(member.state.phase == Phase::Resting);
  member.wait(50ms);
  CHECK(member.count<Connect>() == 1);
}

TEST_CASE("a member that was itself suspended does not treat its coordinator as lost") {
  MemberDriver member = MemberDriver::in(Phase::Running);
  member.wait(1h);
  CHECK(member.state.phase == Phase::Running);
  CHECK(member.sent<Ping>() == Ping{});
}

TEST_CASE("a join timeout names the missing nodes") {
  MemberDriver member = MemberDriver::in(Phase::Joined);
  member.receive(Waiting{3, 1, {{1, "host1"}}, {0, 2}});
  CHECK_THAT(member.log(), ContainsSubstring("waiting for 2 of 3 nodes at 10.0.0.1:29500: node 0, "
                                             "node 2 missing (joined: node 1 (host1)); 15m left"));
  while (member.state.phase == Phase::Joined) {
    member.now = *deadline(member.state);
    member.event(MemberTick{});
    member.keep(Pong{});
  }
  CHECK(member.now <= MemberDriver::start_time() + 15min + 2s);
  CHECK_THAT(std::get<NotRun>(member.outcome().ending).error.message,
             ContainsSubstring("1 of 3 nodes joined") && ContainsSubstring("node 0, node 2"));
}

TEST_CASE("missing nodes are logged ever less often, and at once after a round") {
  MemberDriver member = MemberDriver::in(Phase::Joined);
  std::vector<Time::duration> times;
  const auto wait_for = [&](Time::duration time) {
    const Time from = member.now;
    for (times.clear(); member.now - from < time; member.now += 10s) {
      member.receive(Waiting{3, 1, {{1, "host1"}}, {0, 2}});
      if (!member.log(LogLevel::Info).empty()) times.push_back(member.now - from);
    }
  };
  wait_for(12min);
  CHECK(times == std::vector<Time::duration>{10s, 60s, 360s, 660s});
  member.receive(WorldReady{MemberDriver::world(0)});
  member.receive(Stop{0, "rank 0 failed"});
  member.event(OwnStopped{0, {}});
  wait_for(2min);
  CHECK(times == std::vector<Time::duration>{0s, 50s});
}

TEST_CASE("a spare logs in each round that it waits") {
  MemberDriver member = MemberDriver::in(Phase::Joined);
  for (int round = 0; round < 3; ++round) {
    member.receive(
        Waiting{.node_count = 2, .joined_count = 3, .min_node_count = 2, .is_spare = true});
    CHECK_FALSE(member.log(LogLevel::Info).empty());
  }
}

TEST_CASE("before a connection is made a signal ends the job only here") {
  const auto phase = GENERATE(Phase::Dialing, Phase::Resting);
  MemberDriver member = MemberDriver::in(phase);
  member.event(OwnSignal{2});
  CHECK(member.outcome().ending == Ending(Interrupted{2, 1, "host1"}));
}

TEST_CASE("a signal after the hello is forwarded, and the wait for the outcome is limited") {
  const auto phase = GENERATE(Phase::Greeting, Phase::Joined);
  MemberDriver member = MemberDriver::in(phase);
  member.event(OwnSignal{15});
  CHECK(member.sent<Signaled>().signal == 15);
  CHECK(member.state.phase == Phase::Leaving);
  if (phase == Phase::Greeting) member.receive(Welcome{Milliseconds(15000)});
  SECTION("the outcome arrives") {
    member.receive(Finish{MemberDriver::outcome_of(Interrupted{15, 1, "host1"})});
    CHECK(member.outcome().ending == Ending(Interrupted{15, 1, "host1"}));
  }
  SECTION("a world arrives meanwhile: no worker is started, and its stop is answered") {
    member.receive(WorldReady{MemberDriver::world(0)});
    CHECK(member.actions.empty());
    member.receive(Stop{0, "signal"});
    CHECK(member.sent<rendezvous::Stopped>().round == 0);
  }
  SECTION("nothing arrives") {
    member.wait(2s);
    CHECK(member.outcome().ending == Ending(Interrupted{15, 1, "host1"}));
  }
}

TEST_CASE("a signal before the welcome ends the job within 0.5 s whatever the peer sends") {
  MemberDriver member = MemberDriver::in(Phase::Greeting);
  member.event(OwnSignal{15});
  SECTION("nothing") { member.wait(500ms); }
  SECTION("a refusal") { member.receive(Refused{{ErrorCode::Refused, "no"}}); }
  SECTION("a world before the welcome") { member.receive(WorldReady{MemberDriver::world(0)}); }
  SECTION("the end of the connection") { member.event(ConnectionLost{"its connection closed"}); }
  CHECK(member.outcome().ending == Ending(Interrupted{15, 1, "host1"}));
}

TEST_CASE("the first signal while workers run stops them, and later ones do nothing") {
  MemberDriver member = MemberDriver::in(Phase::Running);
  member.event(OwnSignal{15});
  CHECK(member.sent<Signaled>().signal == 15);
  CHECK(member.only<StopWorkers>().round == 0);
  member.event(OwnSignal{15});
  CHECK(member.actions.empty());
  member.event(OwnStopped{0, {}});
  CHECK(member.sent<rendezvous::Stopped>().round == 0);
  CHECK(member.state.phase == Phase::Leaving);
  member.event(ConnectionLost{"its connection closed"});
  CHECK(member.outcome().ending == Ending(Interrupted{15, 1, "host1"}));
}

TEST_CASE("an outcome that arrives while workers run takes effect after they have exited") {
  const auto phase = GENERATE(Phase::Running, Phase::Stopping);
  MemberDriver member = MemberDriver::in(phase);
  member.receive(Finish{MemberDriver::outcome_of(Interrupted{15, 0, "a"})});
  CHECK(member.count<End>() == 0);
  CHECK(member.count<StopWorkers>() == (phase == Phase::Running ? 1 : 0));
  member.event(OwnStopped{0, {}});
  CHECK(member.outcome().ending == Ending(Interrupted{15, 0, "a"}));
}

TEST_CASE("every event is handled in every phase, and the end is reported once and last") {
  for (const Phase phase : kAllPhases) {
    for (int event = 0; event < MemberDriver::kEventKinds; ++event) {
      CAPTURE(static_cast<int>(phase), event);
      MemberDriver member = MemberDriver::in(phase);
      if (phase == Phase::Running && event == MemberDriver::kStoppedWithoutCause)
        continue;  // asserted; the agent never sends this
      member.provoke(event);
      CHECK(member.count<End>() + (phase == Phase::Ended ? 1U : 0U) ==
            (member.state.phase == Phase::Ended ? 1U : 0U));
      if (member.count<End>() == 1) CHECK(std::holds_alternative<End>(member.actions.back()));
      if (phase == Phase::Ended) CHECK(member.actions.empty());
      const bool is_silent =
          member.state.phase == Phase::Ended || member.state.phase == Phase::Ending;
      CHECK(deadline(member.state).has_value() == !is_silent);
    }
  }
}

namespace {

// Returns a member whose coordinator has reported two addresses.
MemberDriver with_reach_timeout() {
  MemberDriver member;
  JoinSpec& join = member.state.spec.join;
  join.reach_timeout = 12s;
  join.endpoint = {"alias", 4711};
  join.book = {{.endpoint = join.endpoint, .addresses = {"10.0.0.1", "10.1.0.1"}}};
  member.state = new_member(member.state.spec);
  member.event(MemberStart{});
  return member;
}

}  // namespace

TEST_CASE("a member that reaches no reported address gives up after the reach timeout") {
  MemberDriver member = with_reach_timeout();
  while (member.state.phase != Phase::Ended) {
    if (member.state.phase == Phase::Dialing)
      member.event(ConnectFailed{"no route to host (10.0.0.1)"});
    member.now = *deadline(member.state);
    member.event(MemberTick{});
  }
  CHECK(member.now == MemberDriver::start_time() + 12s);
  const Error error = std::get<NotRun>(member.outcome().ending).error;
  CHECK(error.code == ErrorCode::Unreachable);
  CHECK_THAT(error.message,
             ContainsSubstring("cannot reach any of 10.0.0.1:4711, 10.1.0.1:4711 from host1: no "
                               "route to host (10.0.0.1); ") &&
                 ContainsSubstring("--master-addr"));
}

TEST_CASE("the reach timeout does not apply once connected, except to a wrong machine") {
  MemberDriver member = with_reach_timeout();
  member.event(Connected{"10.0.0.1"});
  SECTION("a coordinator") {
    member.receive(Welcome{Milliseconds(60000)});
    member.be_silent(30s);
    CHECK(member.state.phase == Phase::Joined);
  }
  SECTION("a wrong machine") {
    member.event(WrongPeer{"has another secret", true});
    CHECK(member.state.phase == Phase::Resting);
    while (member.state.phase != Phase::Ended) {
      if (member.state.phase == Phase::Dialing) member.event(ConnectFailed{"has another secret"});
      member.now = *deadline(member.state);
      member.event(MemberTick{});
    }
    CHECK(member.now == MemberDriver::start_time() + 12s);
  }
}

TEST_CASE("workers get the address that the member connected to as master address") {
  MemberDriver member = with_reach_timeout();
  member.event(Connected{"10.1.0.1"});
  member.receive(Welcome{Milliseconds(15000)});
  member.receive(WorldReady{MemberDriver::world(0)});
  CHECK(member.only<StartWorkers>().world.master_addr == "10.1.0.1");
}

TEST_CASE("an address that closes the connection at once is tried after the others") {
  MemberDriver member = with_reach_timeout();
  member.event(Connected{"10.0.0.1"});
  member.event(ConnectionLost{"its connection closed"});
  CHECK(member.count<AvoidAddress>() == 1);
  CHECK(member.state.phase == Phase::Resting);
}

}  // namespace drun::rendezvous
