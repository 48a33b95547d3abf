// Tests a member of an elastic job, whose nodes can join and leave.
#include "rendezvous/member/member.h"
#include "tests/support/catch.h"
#include "tests/support/member_driver.h"

namespace drun::rendezvous {
namespace {

using test::MemberDriver;
using namespace std::chrono_literals;
using Phase = MemberPhase;

MemberDriver elastic(Phase phase) {
  MemberDriver member = MemberDriver::in(phase);
  member.state.spec.join.elastic = ElasticSpec{.min_nodes = 2};
  return member;
}

World world(int round, int node_rank) {
  World world = MemberDriver::world(round);
  world.node_rank = node_rank;
  return world;
}

}  // namespace

TEST_CASE("an elastic member's hello has its node range and slot but no node rank") {
  MemberDriver member = elastic(Phase::Dialing);
  member.state.spec.join.slot = 2;
  member.event(Connected{});
  const Hello hello = member.sent<Hello>();
  CHECK_FALSE(hello.node_rank.has_value());
  CHECK(hello.min_node_count == 2);
  CHECK(hello.node_count == 3);
  CHECK(hello.slot == 2);
  CHECK_FALSE(hello.is_coordinator);
}

TEST_CASE("an elastic member uses the node rank that each round assigns") {
  MemberDriver member = elastic(Phase::Joined);
  member.receive(WorldReady{world(3, 0)});
  CHECK(member.only<StartWorkers>().world.node_rank == 0);
  member.receive(Stop{3, "a node joins"});
  member.event(OwnStopped{3, {}});
  member.receive(WorldReady{world(4, 2)});
  CHECK(member.only<StartWorkers>().world.node_rank == 2);
}

TEST_CASE("a member reports an excluded node and stays in its phase") {
  const Phase phase = GENERATE(Phase::Joined, Phase::Running, Phase::Stopped);
  MemberDriver member = elastic(phase);
  member.receive(NodeLeftOut{{1, "b", 0, "it fails"}});
  CHECK(member.only<ShowLeftOut>().node.host == "b");
  CHECK(member.state.phase == phase);
}

TEST_CASE("a spare waits indefinitely while the coordinator is alive") {
  MemberDriver member = elastic(Phase::Joined);
  Waiting waiting{.node_count = 3, .joined_count = 3, .min_node_count = 2, .is_spare = true};
  member.receive(waiting);
  CHECK_THAT(member.log(), ContainsSubstring("runs on 3 nodes without this one"));
  const Time until = member.now + 24h;
  while (member.now < until) {
    member.now = *deadline(member.state);
    member.event(MemberTick{});
    member.receive(Pong{});
  }
  CHECK(member.state.phase == Phase::Joined);
  member.event(ConnectionLost{"its connection was reset"});
  CHECK(member.state.phase == Phase::Resting);
  member.wait(50ms);
  CHECK(member.count<Connect>() == 1);
  member.event(Connected{});
  member.receive(Welcome{15s});
  CHECK(member.state.phase == Phase::Joined);
}

TEST_CASE("an elastic member that loses its connection stops its workers and reconnects") {
  const auto phase = GENERATE(Phase::Running, Phase::Done, Phase::Stopping, Phase::Stopped);
  MemberDriver member = elastic(phase);
  member.event(ConnectionLost{"its connection was reset"});
  CHECK(member.count<StopWorkers>() == (phase == Phase::Running || phase == Phase::Done ? 1U : 0U));
  if (phase != Phase::Stopped) {
    CHECK(member.state.phase == Phase::Parting);
    member.event(OwnStopped{0, {}});
  }
  CHECK(member.state.phase == Phase::Resting);
  member.wait(50ms);
  CHECK(member.count<Connect>() == 1);
  SECTION("the coordinator accepts it again") {
    member.event(Connected{});
    member.receive(Welcome{15s});
    member.receive(WorldReady{world(1, 0)});
    CHECK(member.only<StartWorkers>().world.round == 1);
  }
  SECTION("the connection is refused") {
    member.event(ConnectFailed{"connection refused (10.0.0.1)", true});
    const NodeLost lost = std::get<NodeLost>(member.outcome().ending);
    CHECK(lost.is_coordinator);
    CHECK(lost.reason == "its connection was reset");
  }
  SECTION("the coordinator is unreachable") {
    while (member.state.phase != Phase::Ended) {
      if (member.state.phase == Phase::Dialing) member.event(ConnectFailed{"no route to host"});
      member.now = *deadline(member.state);
      member.event(MemberTick{});
    }
    CHECK(std::get<NodeLost>(member.outcome().ending).is_coordinator);
    CHECK(member.now - MemberDriver::start_time() <= 16s);  // the heartbeat timeout
  }
  SECTION("the coordinator rejects it") {
    member.event(Connected{});
    member.receive(Refused{{ErrorCode::Closed, "the job there is over"}});
    CHECK(std::get<NodeLost>(member.outcome().ending).reason ==
          "its connection was reset; then the job there is over");
  }
  SECTION("it receives a signal") {
    member.event(OwnSignal{15});
    CHECK(member.outcome().ending == Ending(Interrupted{15, 1, "host1"}));
  }
}

TEST_CASE(
    "a signal while the workers of a lost world stop ends the member once they have stopped") {
  MemberDriver member = elastic(Phase::Running);
  member.event(ConnectionLost{"its connection was reset"});
  member.event(OwnSignal{15});
  CHECK(member.actions.empty());
  member.event(OwnStopped{0, {}});
  CHECK(member.outcome().ending == Ending(Interrupted{15, 1, "host1"}));
}

TEST_CASE("a silent coordinator is treated as lost within its heartbeat timeout") {
  MemberDriver member = MemberDriver::in(Phase::Running);
  const Time silent_since = member.now;
  member.be_silent(1min);
  CHECK(member.state.phase == Phase::Ending);
  CHECK(member.now - silent_since <= 15s);
}

}  // namespace drun::rendezvous
