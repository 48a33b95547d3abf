// Tests the coordinator of an elastic job, whose nodes can join and leave.
#include "rendezvous/coordinator/round.h"

#include "tests/support/catch.h"
#include "tests/support/elastic_job.h"

namespace drun::rendezvous {
namespace {

using test::aged_failure;
using test::elastic_spec;
using test::ElasticJob;
using test::RoundDriver;
using namespace std::chrono_literals;

ElasticJob running_elastic(int least, int most, int nodes) {
  ElasticJob job(least, most);
  for (int node = 0; node < nodes; ++node) job.come(node);
  if (nodes < most) job.live(31s);
  REQUIRE(job.state.phase == RoundPhase::Running);
  REQUIRE(job.state.present_count == nodes);
  return job;
}

}  // namespace

TEST_CASE(
    "an elastic world with all nodes starts at once, ranked by name after the coordinator's node") {
  ElasticJob job(2, 3);
  job.come(2);
  job.come(0);
  CHECK(job.state.phase == RoundPhase::Joining);
  job.come(1);
  REQUIRE(job.state.phase == RoundPhase::Running);
  for (int node = 0; node < 3; ++node) {
    const World world = job.world_of(node).value();
    CHECK(world.node_rank == node);
    CHECK(world.base_rank == 2 * node);
    CHECK(world.node_count == 3);
    CHECK(world.restarts == 0);
  }
}

TEST_CASE("an elastic world with the minimum node count starts after the last call") {
  ElasticJob job(2, 4);
  job.come(0);
  job.live(20s);
  CHECK(job.state.phase == RoundPhase::Joining);
  job.come(1);
  job.live(29s);
  CHECK(job.state.phase == RoundPhase::Joining);
  job.live(1500ms);
  CHECK(job.state.phase == RoundPhase::Running);
  CHECK(job.world_of(1)->node_count == 2);
}

TEST_CASE("the last call is canceled when too few nodes are left") {
  ElasticJob job(2, 4);
  job.come(0);
  job.come(1);
  job.live(20s);
  job.leave(RoundDriver::peer(1));
  job.live(20s);
  CHECK(job.state.phase == RoundPhase::Joining);
  job.come(2);
  job.live(29s);
  CHECK(job.state.phase == RoundPhase::Joining);
}

TEST_CASE("no world starts without the coordinator's own node") {
  ElasticJob job(1, 2);
  job.come(1);
  job.come(2);
  job.live(60s);
  CHECK(job.state.phase == RoundPhase::Joining);
  job.come(0);
  CHECK(job.state.phase == RoundPhase::Running);
  CHECK(job.world_of(0)->node_rank == 0);
  CHECK(job.world_of(1).has_value());
  CHECK(job.sent<Waiting>(RoundDriver::peer(2)).at(0).is_spare);
}

TEST_CASE("a spare replaces a lost node under the same node rank without using a restart") {
  ElasticJob job = running_elastic(2, 3, 3);
  job.come(3);
  CHECK(job.sent<Waiting>(RoundDriver::peer(3)).at(0).is_spare);
  job.live(60s);
  CHECK(job.state.phase == RoundPhase::Running);
  job.leave(RoundDriver::peer(1));
  CHECK(job.sent<Stop>(RoundDriver::peer(2)).size() == 1);
  CHECK(job.sent<Stop>(RoundDriver::peer(3)).empty());
  job.stopped(0);
  job.stopped(2);
  REQUIRE(job.state.phase == RoundPhase::Running);
  CHECK(job.world_of(3)->node_rank == 1);
  CHECK(job.world_of(2)->node_rank == 2);
  CHECK(job.world_of(2)->round == 1);
  CHECK(job.world_of(2)->restarts == 0);
  CHECK(job.count<ClearStore>() == 1);
}

TEST_CASE("without a spare the world continues at once with fewer nodes") {
  ElasticJob job = running_elastic(2, 4, 4);
  job.leave(RoundDriver::peer(1));
  for (const int node : {0, 2, 3}) job.stopped(node);
  REQUIRE(job.state.phase == RoundPhase::Running);
  CHECK(job.world_of(3)->node_rank == 1);  // the last node fills the gap
  CHECK(job.world_of(2)->node_rank == 2);
  CHECK(job.world_of(2)->world_size == 6);
}

TEST_CASE("a new node stops a running world after it has been connected long enough") {
  ElasticJob job = running_elastic(2, 3, 2);
  job.come(2);
  job.live(4500ms);
  CHECK(job.state.phase == RoundPhase::Running);
  job.live(1s);
  CHECK(job.state.phase == RoundPhase::Stopping);
  job.stopped(0);
  job.stopped(1);
  CHECK(job.world_of(2)->node_count == 3);
  CHECK(job.world_of(0)->restarts == 0);
}

TEST_CASE("a world is not stopped for a new node once workers have returned") {
  ElasticJob job = running_elastic(2, 3, 2);
  job.receive(RoundDriver::peer(1), AllReturned{0});
  job.come(2);
  job.live(60s);
  CHECK(job.state.phase == RoundPhase::Running);
  job.receive(RoundDriver::peer(0), AllReturned{0});
  CHECK(std::holds_alternative<Succeeded>(
      job.sent<Finish>(RoundDriver::peer(2)).at(0).outcome.ending));
}

TEST_CASE("a world that completes while it stops for a new node is not run again") {
  ElasticJob job = running_elastic(2, 3, 2);
  job.come(2);
  job.live(6s);
  REQUIRE(job.state.phase == RoundPhase::Stopping);
  for (const int node : {0, 1}) job.receive(RoundDriver::peer(node), AllReturned{0});
  for (const int node : {0, 1}) job.stopped(node);
  CHECK(std::holds_alternative<Succeeded>(
      job.sent<Finish>(RoundDriver::peer(0)).at(0).outcome.ending));
}

TEST_CASE("a node whose workers have returned can leave without stopping the others") {
  ElasticJob job = running_elastic(2, 3, 3);
  job.receive(RoundDriver::peer(2), AllReturned{0});
  job.leave(RoundDriver::peer(2));
  CHECK(job.state.phase == RoundPhase::Running);
  for (const int node : {0, 1}) job.receive(RoundDriver::peer(node), AllReturned{0});
  CHECK(std::holds_alternative<Succeeded>(
      job.sent<Finish>(RoundDriver::peer(0)).at(0).outcome.ending));
}

TEST_CASE("below the minimum a job waits for a replacement, then ends and reports the lost node") {
  ElasticJob job = running_elastic(2, 2, 2);
  job.leave(RoundDriver::peer(1));
  job.stopped(0);
  CHECK(job.state.phase == RoundPhase::Joining);
  job.wait(0ms);
  CHECK(job.sent<Waiting>(RoundDriver::peer(0)).at(0).joined_count == 1);
  SECTION("a replacement joins") {
    job.live(9min);
    job.come(5);
    CHECK(job.state.phase == RoundPhase::Running);
    CHECK(job.world_of(5)->node_rank == 1);
  }
  SECTION("no replacement joins") {
    job.live(10min + 1s);
    const auto finish = job.sent<Finish>(RoundDriver::peer(0));
    REQUIRE(finish.size() == 1);
    const NodeLost lost = std::get<NodeLost>(finish[0].outcome.ending);
    CHECK(lost.node_rank == 1);
    CHECK(lost.host == "host1");
    CHECK_THAT(lost.reason, ContainsSubstring("no replacement came: 1 of 2 nodes joined") &&
                                ContainsSubstring("within 10m (host0)"));
  }
}

TEST_CASE("the reported times of a node that stays count in the next world") {
  ElasticJob job(1, 2);
  job.come(0);
  job.come(1);
  job.receive(RoundDriver::peer(0), TimesReport{{.current = drun::Phase::Running}});
  job.leave(RoundDriver::peer(1));
  job.stopped(0);
  REQUIRE(job.world_of(0)->round == 1);
  job.now += 7s;
  job.receive(RoundDriver::peer(0), Signaled{15});
  job.stopped(0);
  const JobTimes times = job.sent<Finish>(RoundDriver::peer(0)).at(0).outcome.times;
  CHECK(times.nodes == 1);
  CHECK(times.mean[index_of(drun::Phase::Running)] == 7s);
}

TEST_CASE("a start with too few nodes times out and names the nodes that joined") {
  ElasticJob job(3, 4);
  job.come(0);
  job.come(1);
  job.live(10min + 1s);
  const Error error =
      std::get<NotRun>(job.sent<Finish>(RoundDriver::peer(1)).at(0).outcome.ending).error;
  CHECK(error.code == ErrorCode::Timeout);
  CHECK_THAT(error.message, ContainsSubstring("2 of 3 to 4 nodes joined at host0:29400 within 10m "
                                              "(host0, host1)"));
}

TEST_CASE("an agent that reconnects is the same member and keeps its node rank") {
  ElasticJob job = running_elastic(2, 3, 3);
  SECTION("before the loss is detected") {
    job.come_as(50, 1, 4711);
    CHECK_FALSE(job.dropped(RoundDriver::peer(1)));
    job.wait(1s);
    CHECK(job.dropped(RoundDriver::peer(1)));
  }
  SECTION("after the loss is detected") {
    job.leave(RoundDriver::peer(1));
    job.come_as(50, 1, 4711);
  }
  CHECK(job.state.line.size() == 1);
  job.live(6s);  // min_uptime, as it was lost once
  job.stopped(0);
  job.stopped(2);
  CHECK(job.world(50)->node_rank == 1);
  CHECK(job.world(50)->node_count == 3);
}

TEST_CASE("a host's agent joins only once, but another slot or address is a different agent") {
  ElasticJob job(3, 3);
  job.come(0);
  job.come(1);
  job.come_as(50, 1, RoundDriver::peer(1));  // the same instance as before
  CHECK(job.dropped(RoundDriver::peer(1)));
  CHECK(job.state.phase == RoundPhase::Joining);
  SECTION("another slot") {
    Hello other = job.hello_of(1);
    other.slot = 1;
    job.join(51, other);
  }
  SECTION("the same name at another address") {
    job.event(PeerArrived{51, "10.0.0.8:51", job.hello_of(1)});
  }
  CHECK(job.state.phase == RoundPhase::Running);
}

TEST_CASE("a second agent with the identity of a live member is rejected with a remedy") {
  const bool is_seated = GENERATE(true, false);
  CAPTURE(is_seated);
  ElasticJob job = is_seated ? running_elastic(2, 3, 3) : ElasticJob(3, 3);
  if (!is_seated) {
    job.come(0);
    job.come(1);
  }
  const Peer holder = RoundDriver::peer(1);
  for (Peer newcomer = 50; newcomer < 53; ++newcomer) {
    const RoundPhase phase = job.state.phase;
    job.come_as(newcomer, 1, 4000 + newcomer);
    CHECK(job.sent<Welcome>(newcomer).empty());
    CHECK(deadline(job.state).value() <= job.now + 1s);
    const auto checks = job.sent<LivenessCheck>(holder);
    REQUIRE(checks.size() == 1);
    job.receive(holder, Ping{});  // may have been sent before the liveness check
    CHECK(job.sent<Refused>(newcomer).empty());
    job.receive(holder, LivenessReply{checks[0].check});
    REQUIRE(job.sent<Refused>(newcomer).size() == 1);
    const Error error = job.sent<Refused>(newcomer)[0].error;
    CHECK(error.code == ErrorCode::Refused);
    CHECK_THAT(error.message, ContainsSubstring("another agent with host name host1, address "
                                                "10.0.0.9 and slot 0") &&
                                  ContainsSubstring("give each container its own host name"));
    CHECK(job.dropped(newcomer));
    job.leave(newcomer);
    job.live(5s);
    CHECK_FALSE(job.dropped(holder));
    CHECK(job.state.phase == phase);
  }
}

TEST_CASE("a restarted agent is accepted as soon as its old connection closes") {
  ElasticJob job = running_elastic(2, 3, 3);
  job.come_as(50, 1, 4711);
  CHECK(job.sent<Welcome>(50).empty());
  job.wait(200ms);
  CHECK(job.sent<Welcome>(50).empty());
  job.leave(RoundDriver::peer(1));
  CHECK(job.sent<Welcome>(50).size() == 1);
  CHECK(job.state.phase == RoundPhase::Stopping);
  job.live(6s);  // min_uptime, as it was lost once
  job.stopped(0);
  job.stopped(2);
  CHECK(job.world(50)->node_rank == 1);
}

TEST_CASE("a restarted agent is accepted once its old connection has been silent for a second") {
  ElasticJob job = running_elastic(2, 3, 3);
  job.come_as(50, 1, 4711);
  job.come_as(51, 1, 4712);
  CHECK(job.sent<LivenessCheck>(RoundDriver::peer(1)).empty());  // a check is in progress
  job.wait(999ms);
  CHECK(job.sent<Welcome>(50).empty());
  job.wait(1ms);
  CHECK(job.sent<Welcome>(50).size() == 1);
  CHECK(job.dropped(RoundDriver::peer(1)));
  // Peer 51 now claims the identity of peer 50, which answers.
  const auto checks = job.sent<LivenessCheck>(50);
  REQUIRE(checks.size() == 1);
  job.receive(50, LivenessReply{checks[0].check});
  CHECK(job.sent<Refused>(51).size() == 1);
}

TEST_CASE("a delayed coordinator still gives the holder of an identity time to answer") {
  ElasticJob job = running_elastic(2, 3, 3);
  job.come_as(50, 1, 4711);
  const auto checks = job.sent<LivenessCheck>(RoundDriver::peer(1));
  job.wait(5s);
  CHECK_FALSE(job.dropped(RoundDriver::peer(1)));
  SECTION("an answer that was already queued counts") {
    job.receive(RoundDriver::peer(1), LivenessReply{checks.at(0).check});
    CHECK(job.sent<Refused>(50).size() == 1);
  }
  SECTION("the holder does not answer") {
    job.wait(5s);
    CHECK(job.sent<Welcome>(50).size() == 1);
  }
}

TEST_CASE(
    "the number of claims to one identity is limited, and a claimant that leaves is removed") {
  ElasticJob job = running_elastic(2, 3, 3);
  for (Peer newcomer = 50; newcomer < 58; ++newcomer) {
    job.come_as(newcomer, 1, newcomer);
    CHECK_FALSE(job.dropped(newcomer));
  }
  job.come_as(60, 1, 60);
  CHECK(job.dropped(60));
  job.come_as(61, 1, 57);  // the last claimant again, on a new connection
  CHECK(job.dropped(57));
  CHECK_FALSE(job.dropped(61));
  for (Peer newcomer = 50; newcomer < 62; ++newcomer) job.leave(newcomer);
  CHECK_FALSE(job.state.contests.next_expiry());
  job.live(2s);
  CHECK_FALSE(job.dropped(RoundDriver::peer(1)));
}

TEST_CASE("connections that claim an identity are dropped when the job ends") {
  ElasticJob job = running_elastic(2, 3, 3);
  job.come_as(50, 1, 4711);
  for (const int node : {0, 1, 2}) job.receive(RoundDriver::peer(node), AllReturned{0});
  REQUIRE(job.state.phase == RoundPhase::Ending);
  bool was_answered = false;
  for (const int node : {0, 1, 2}) {
    job.leave(RoundDriver::peer(node));
    was_answered = was_answered || job.dropped(50);
  }
  CHECK(was_answered);
  CHECK(job.state.phase == RoundPhase::Over);
}

TEST_CASE("a node that is lost repeatedly must stay connected longer each time") {
  ElasticJob job = running_elastic(1, 2, 2);
  Peer peer = RoundDriver::peer(1);
  for (const Milliseconds needed : {5000ms, 10'000ms, 20'000ms}) {
    job.leave(peer);
    job.stopped(0);
    REQUIRE(job.state.phase == RoundPhase::Running);
    peer += 100;
    job.come_as(peer, 1, peer);
    job.live(needed - 500ms);
    CHECK(job.state.phase == RoundPhase::Running);
    job.live(1s);
    CHECK(job.state.phase == RoundPhase::Stopping);
    job.stopped(0);
    REQUIRE(job.world(peer).has_value());
  }
}

TEST_CASE("an agent that receives a signal leaves alone if enough nodes remain") {
  ElasticJob job = running_elastic(2, 3, 3);
  job.receive(RoundDriver::peer(2), Signaled{15});
  CHECK(job.sent<Stop>(RoundDriver::peer(0)).size() == 1);
  job.stopped(2);
  const auto finish = job.sent<Finish>(RoundDriver::peer(2));
  REQUIRE(finish.size() == 1);
  CHECK(finish[0].outcome.ending == Ending(Interrupted{15, 2, "host2"}));
  CHECK(job.dropped(RoundDriver::peer(2)));
  job.stopped(0);
  job.stopped(1);
  CHECK(job.world_of(1)->node_count == 2);
  CHECK(job.world_of(1)->restarts == 0);
}

TEST_CASE("a signal to the coordinator's node, or one that leaves too few nodes, ends the job") {
  const int node = GENERATE(0, 1);
  ElasticJob job = running_elastic(node == 0 ? 1 : 2, 2, 2);
  job.receive(RoundDriver::peer(node), Signaled{2});
  job.stopped(0);
  job.stopped(1);
  CHECK(job.sent<Finish>(RoundDriver::peer(0)).at(0).outcome.ending ==
        Ending(Interrupted{2, node, "host" + std::to_string(node)}));
}

TEST_CASE("an elastic job ends in any phase when it loses the coordinator's own node") {
  ElasticJob job(2, 3);
  job.come(0);
  job.come(1);
  const bool is_running = GENERATE(false, true);
  if (is_running) job.come(2);
  job.leave(RoundDriver::peer(0));
  if (is_running) {
    job.stopped(1);
    job.stopped(2);
  }
  const auto finish = job.sent<Finish>(RoundDriver::peer(1));
  REQUIRE(finish.size() == 1);
  CHECK(finish[0].outcome.ending == Ending(NodeLost{0, "host0", true, "its connection closed"}));
}

TEST_CASE("a waiting node that receives a signal leaves alone and has no node rank") {
  ElasticJob job(3, 3);
  job.come(0);
  job.come(1);
  job.receive(RoundDriver::peer(1), Signaled{2});
  CHECK(job.sent<Finish>(RoundDriver::peer(1)).at(0).outcome.ending ==
        Ending(Interrupted{2, std::nullopt, "host1"}));
  CHECK(job.state.phase == RoundPhase::Joining);
  CHECK(job.state.line.size() == 1);
}

TEST_CASE("a worker failure restarts an elastic world at once and uses a restart") {
  RoundSpec spec = elastic_spec(1, 2);
  spec.max_restarts = 1;
  ElasticJob job(spec);
  job.come(0);
  job.come(1);
  job.receive(RoundDriver::peer(1), Failed{0, aged_failure(1)});
  job.stopped(0);
  job.stopped(1, {aged_failure(1)});
  CHECK(job.world_of(1)->restarts == 1);
  job.receive(RoundDriver::peer(1), Failed{1, aged_failure(1)});
  job.stopped(0);
  job.stopped(1, {aged_failure(1)});
  CHECK(std::holds_alternative<WorkersFailed>(
      job.sent<Finish>(RoundDriver::peer(0)).at(0).outcome.ending));
}

TEST_CASE("a restart waits for its pause, and a signal or lost node meanwhile ends the job") {
  RoundSpec spec = elastic_spec(1, 2);
  spec.elastic.reset();
  spec.max_restarts = 1;
  spec.restart.pause = 3s;
  RoundDriver job(spec);
  job.join_all();
  job.receive(RoundDriver::peer(1), Failed{0, aged_failure(1)});
  for (const int node : {0, 1}) job.receive(RoundDriver::peer(node), Stopped{0, {}, 0});
  CHECK(job.state.phase == RoundPhase::Pausing);
  SECTION("the pause ends") {
    job.wait(2999ms);
    CHECK(job.state.phase == RoundPhase::Pausing);
    job.wait(1ms);
    CHECK(job.sent<WorldReady>(RoundDriver::peer(1)).at(0).world.restarts == 1);
  }
  SECTION("a signal arrives") {
    job.receive(RoundDriver::peer(1), Signaled{15});
    CHECK(job.sent<Finish>(RoundDriver::peer(0)).size() == 1);
  }
  SECTION("a node is lost") {
    job.leave(RoundDriver::peer(1));
    CHECK(std::holds_alternative<NodeLost>(
        job.sent<Finish>(RoundDriver::peer(0)).at(0).outcome.ending));
  }
}

TEST_CASE(
    "a silent node of an elastic world is lost within the heartbeat timeout plus one second") {
  ElasticJob job = running_elastic(1, 2, 2);
  const Time silent_since = job.now;
  while (job.state.phase == RoundPhase::Running && job.now < silent_since + 1min) {
    job.receive(RoundDriver::peer(0), Ping{});
    job.now = *deadline(job.state);
    job.event(RoundTick{});
  }
  CHECK(job.dropped(RoundDriver::peer(1)));
  CHECK(job.now - silent_since <= 11s);
}

TEST_CASE("a node with conflicting settings is rejected from an elastic job with the reason") {
  ElasticJob job(2, 3);
  job.come(0);
  Hello hello = job.hello_of(1);
  std::string words;
  SECTION("a fixed node rank") {
    hello.node_rank = 1;
    words = "it was given --node-rank=1";
  }
  SECTION("a different minimum") {
    hello.min_node_count = 1;
    words = "--nnodes=1:3, but the coordinator with --nnodes=2:3";
  }
  SECTION("a second coordinator") {
    hello.is_coordinator = true;
    hello.is_probe = true;
    words = "host host0 (pid 1000) is the coordinator there already";
  }
  job.join(7, hello);
  const auto refused = job.sent<Refused>(7);
  REQUIRE(refused.size() == 1);
  CHECK_THAT(refused[0].error.message, ContainsSubstring(words));
}

TEST_CASE("the number of nodes that wait for an elastic job is limited") {
  ElasticJob job(1, 1);
  job.come(0);
  for (int node = 1; node <= 4097; ++node) job.come(node + 1000);
  CHECK(job.sent<Refused>(RoundDriver::peer(5097)).empty());
  job.come(9000);
  CHECK_THAT(job.sent<Refused>(RoundDriver::peer(9000)).at(0).error.message,
             ContainsSubstring("too many nodes wait"));
}

}  // namespace drun::rendezvous
