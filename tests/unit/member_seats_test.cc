// A member of a job with several endpoints.
#include "rendezvous/member/member.h"

#include "tests/support/catch.h"
#include "tests/support/member_driver.h"

namespace drun::rendezvous {
namespace {

using test::MemberDriver;
using namespace std::chrono_literals;
using Phase = MemberPhase;

const std::vector<Endpoint> kSeats{{"a", 1}, {"b", 2}, {"c", 3}};

MemberDriver seeker(std::optional<std::size_t> seat = std::nullopt) {
  MemberDriver member;
  JoinSpec& join = member.state.spec.join;
  join.elastic = ElasticSpec{.min_nodes = 2};
  join.seats = kSeats;
  join.seat = seat;
  member.event(MemberStart{});
  return member;
}

const Endpoint& dialled(const MemberDriver& member) { return member.state.spec.join.endpoint; }

void dial_next(MemberDriver& member) {
  REQUIRE(member.state.phase == Phase::Resting);
  member.now = member.state.retry_at;
  member.event(MemberTick{});
  REQUIRE(member.count<Connect>() == 1);
}

void lose_patience(MemberDriver& member) {
  member.now = member.state.answer_by;
  REQUIRE(*deadline(member.state) <= member.now);
  member.event(MemberTick{});
}

// Returns a member in a world whose coordinator is at seat 0, with term 3.
MemberDriver following(std::optional<std::size_t> seat = std::nullopt) {
  MemberDriver member = seeker(seat);
  member.event(Connected{});
  if (seat && *seat != 0) {
    member.receive(Follow{"a", 1, 3});
    member.event(Connected{});
  }
  member.receive(Welcome{15s, 3});
  World world = MemberDriver::world(4);
  world.restarts = 1;
  member.receive(WorldReady{world});
  REQUIRE(member.state.phase == Phase::Running);
  return member;
}

}  // namespace

TEST_CASE("a member without a seat asks the endpoints one after the other") {
  MemberDriver member = seeker();
  for (const std::size_t seat : {0U, 1U, 2U, 0U}) {
    CHECK(member.count<Connect>() == 1);
    CHECK(dialled(member) == kSeats[seat]);
    member.event(ConnectFailed{"connection refused", true});
    dial_next(member);
  }
  member.event(Connected{});
  CHECK_FALSE(member.sent<Hello>().is_coordinator);
  member.receive(Follow{"c", 3, 7});
  CHECK(member.count<Disconnect>() == 1);
  CHECK(member.count<Connect>() == 1);
  CHECK(dialled(member) == kSeats[2]);
  member.event(Connected{});
  CHECK(member.sent<Hello>().lost_term == 0);
  member.receive(Welcome{15s, 7});
  CHECK(member.state.phase == Phase::Joined);
}

TEST_CASE("a member with a seat asks its own endpoint first and is the host when that seat leads") {
  MemberDriver member = seeker(1);
  CHECK(dialled(member) == kSeats[1]);
  CHECK(member.state.spec.join.is_coordinator);
  member.event(Connected{});
  CHECK(member.sent<Hello>().is_coordinator);
  member.receive(Follow{"a", 1, 3});
  CHECK_FALSE(member.state.spec.join.is_coordinator);
  member.event(Connected{});
  CHECK_FALSE(member.sent<Hello>().is_coordinator);
  member.event(ConnectionLost{"reset"});
  dial_next(member);
  CHECK(dialled(member) == kSeats[1]);
  member.event(Connected{});
  // The named leader could not be reached, so the member waits for a later one.
  CHECK(member.sent<Hello>().lost_term == 3);
}

TEST_CASE("a member that is redirected twice in a row pauses before it asks again") {
  MemberDriver member = seeker();
  member.event(Connected{});
  member.receive(Follow{"b", 2, 3});
  member.event(Connected{});
  member.receive(Follow{"a", 1, 3});
  CHECK(member.state.phase == Phase::Resting);
  CHECK(member.count<Connect>() == 0);
}

TEST_CASE("a member that has lost its coordinator sends its job record to the next one") {
  const auto seat = GENERATE(std::optional<std::size_t>(), std::optional<std::size_t>(2));
  MemberDriver member = following(seat);
  member.now += 7s;
  member.event(ConnectionLost{"reset"});
  CHECK(member.only<StopWorkers>().round == 4);
  member.event(OwnStopped{4, {}});
  dial_next(member);
  member.event(Connected{});
  const Hello hello = member.sent<Hello>();
  CHECK(hello.lost_term == 3);
  REQUIRE(hello.past);
  CHECK(hello.past->rounds == 5);
  CHECK(hello.past->node_count == 3);
  CHECK(hello.past->restarts == 1);
  CHECK(hello.past->coordinator == "a");
  CHECK(hello.past->age >= 7s);
  REQUIRE(hello.past->restart_ages.size() == 1);
  CHECK(hello.past->restart_ages[0] >= 7s);
  SECTION("if no seat knows a leader for a while, any leader is accepted") {
    lose_patience(member);
    dial_next(member);
    member.event(Connected{});
    CHECK(member.sent<Hello>().lost_term == 0);
  }
  SECTION("a seat that cannot be reached says nothing about the leader") {
    const bool is_silent = GENERATE(false, true);
    member.event(ConnectionLost{"reset"});
    dial_next(member);
    if (is_silent)
      lose_patience(member);
    else
      member.event(ConnectFailed{"connection refused", true});
    dial_next(member);
    member.event(Connected{});
    CHECK(member.sent<Hello>().lost_term == 3);
  }
  SECTION("a new leader welcomes it") {
    member.receive(Welcome{15s, 4});
    World next = MemberDriver::world(5);
    next.node_rank = 0;
    member.receive(WorldReady{next});
    CHECK(member.only<StartWorkers>().world.round == 5);
    CHECK(member.state.memory.restarts.size() == 1);
  }
  SECTION("no seat leads until the join timeout") {
    const Time lost = member.now;
    while (member.state.phase != Phase::Ended) {
      if (member.state.phase == Phase::Dialing) member.event(ConnectFailed{"refused", true});
      member.now = *deadline(member.state);
      member.event(MemberTick{});
    }
    CHECK(member.now - lost <= member.state.spec.join.join_timeout);
    CHECK(member.now - lost > 60s);
    const NodeLost end = std::get<NodeLost>(member.outcome().ending);
    CHECK(end.is_coordinator);
    CHECK(end.host == "a");
    CHECK_THAT(end.reason, ContainsSubstring("no majority of a:1,b:2,c:3 has a coordinator"));
  }
}

TEST_CASE("a member leaves its coordinator when its seat names a later leader") {
  MemberDriver member = following(2);
  member.event(LeaderNamed{kSeats[0], 3});
  CHECK(member.actions.empty());
  member.event(LeaderNamed{kSeats[1], 4});
  CHECK(member.count<Disconnect>() == 1);
  CHECK(member.count<StopWorkers>() == 1);
  CHECK(member.state.phase == Phase::Parting);
}

TEST_CASE("a member that gets no answer from a seat asks the next one") {
  MemberDriver member = seeker();
  SECTION("the seat does not accept the connection") {}
  SECTION("the seat does not answer the hello") { member.event(Connected{}); }
  lose_patience(member);
  CHECK(member.count<Disconnect>() == 1);
  dial_next(member);
  CHECK(dialled(member) == kSeats[1]);
}

TEST_CASE("a foreign program at one endpoint is skipped, and at all endpoints it ends the job") {
  MemberDriver member = seeker();
  for (int i = 0; i < 2; ++i) {
    member.event(Connected{});
    member.event(WrongPeer{"is not a drun"});
    dial_next(member);
  }
  member.event(Connected{});
  member.event(WrongPeer{"is not a drun"});
  CHECK(std::get<NotRun>(member.outcome().ending).error.code == ErrorCode::Refused);
}

TEST_CASE("only the most recent restarts are reported individually") {
  MemberDriver member = following();
  const Time first = member.now;
  member.receive(Remember{{}, 300});
  const Time last = member.now += 1min;
  member.receive(Remember{{}, 301});
  member.event(ConnectionLost{"reset"});
  member.event(OwnStopped{4, {}});
  dial_next(member);
  member.event(Connected{});
  const Past past = member.sent<Hello>().past.value();
  CHECK(past.restarts == 301);
  REQUIRE(past.restart_ages.size() == kMostRestartsTold);
  CHECK(past.restart_ages.front() == std::chrono::duration_cast<Milliseconds>(member.now - first));
  CHECK(past.restart_ages.back() == std::chrono::duration_cast<Milliseconds>(member.now - last));
}

TEST_CASE("a member reports whether a world of the program has begun") {
  const bool is_preflight = GENERATE(false, true);
  MemberDriver member = seeker();
  member.event(Connected{});
  member.receive(Welcome{15s, 3});
  World world = MemberDriver::world(4);
  world.is_preflight = is_preflight;
  member.receive(WorldReady{world});
  member.event(ConnectionLost{"reset"});
  member.event(OwnStopped{4, {}});
  dial_next(member);
  member.event(Connected{});
  CHECK(member.sent<Hello>().past.value().is_checked == !is_preflight);
}

TEST_CASE("a member sends the records it was given to the next coordinator") {
  MemberDriver member = following();
  const NodeRecord left_out{.name = "d at 10.0.0.4", .is_left_out = true, .reason = "it fails"};
  member.receive(Remember{{left_out, {.name = "c at 10.0.0.3", .losses = 1}}});
  member.receive(Remember{{{.name = "c at 10.0.0.3", .losses = 2}}});
  member.event(ConnectionLost{"reset"});
  member.event(OwnStopped{4, {}});
  dial_next(member);
  member.event(Connected{});
  const Hello hello = member.sent<Hello>();
  REQUIRE(hello.past);
  CHECK(hello.past->records ==
        std::vector<NodeRecord>{left_out, {.name = "c at 10.0.0.3", .losses = 2}});
}

}  // namespace drun::rendezvous
