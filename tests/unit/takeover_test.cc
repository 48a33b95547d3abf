// Tests a coordinator that takes over from one that was lost.
#include "rendezvous/coordinator/takeover.h"

#include <algorithm>

#include "rendezvous/coordinator/node_queries.h"
#include "rendezvous/coordinator/round.h"
#include "rendezvous/protocol/control_wire.h"
#include "tests/support/catch.h"
#include "tests/support/round_driver.h"

namespace drun::rendezvous {
namespace {

using test::RoundDriver;
using namespace std::chrono_literals;

RoundSpec successor_spec(int least, int most) {
  RoundSpec spec;
  spec.run_id = "job-1";
  spec.term = 7;
  spec.node_count = most;
  spec.elastic = ElasticSpec{.min_nodes = least};
  spec.max_restarts = 3;
  spec.endpoint = "host1:29400";
  spec.master_addr = "host1";
  spec.master_port = 29400;
  spec.join_timeout = 1min;
  spec.heartbeat_timeout = 10s;
  return spec;
}

// Node 0, which coordinated, is lost; node 1 coordinates now.
struct Successor : RoundDriver {
  Successor(int least, int most) : RoundDriver(successor_spec(least, most)) {}

  void come(int node, const std::optional<Past>& past) {
    Hello own = hello(node);
    own.node_rank.reset();
    own.min_node_count = state.spec.elastic->min_nodes;
    own.is_coordinator = node == 1;
    own.past = past;
    join(peer(node), own);
  }
  std::optional<World> world_of(int node) const {
    const auto ready = sent<WorldReady>(peer(node));
    return ready.empty() ? std::nullopt : std::optional(ready.back().world);
  }
};

Past past_of_three() { return {.rounds = 5, .node_count = 3, .age = 90s, .coordinator = "host0"}; }

AgedFailure failed(int rank, std::chrono::microseconds age) {
  Failure failure;
  failure.rank = rank;
  failure.round = 4;
  failure.status = Exited{3};
  return {failure, age};
}

}  // namespace

TEST_CASE("a successor's first world starts when all nodes except the lost one are back") {
  Successor round(1, 4);
  round.come(2, past_of_three());
  CHECK(round.sent<Welcome>(Successor::peer(2)).front().term == 7);
  CHECK_FALSE(round.world_of(2));
  round.come(1, past_of_three());
  REQUIRE(round.world_of(1));
  CHECK(round.world_of(1)->round == 5);
  CHECK(round.world_of(1)->node_rank == 0);
  CHECK(round.world_of(1)->master_addr == "host1");
  CHECK(round.world_of(2)->world_size == 4);
  CHECK(round.world_of(2)->restarts == 0);
}

TEST_CASE("a successor repeats the preflight check unless the program has begun") {
  const bool is_checked = GENERATE(false, true);
  RoundSpec spec = successor_spec(1, 4);
  spec.preflight = true;
  Successor round(1, 4);
  round.state = RoundFence().begin(spec, 7, {.rounds = 5}, round.now);
  Past past = past_of_three();
  round.come(2, past);
  past.is_checked = is_checked;
  round.come(1, past);
  REQUIRE(round.world_of(1));
  CHECK(round.world_of(1)->is_preflight == !is_checked);
}

TEST_CASE("a successor waits at most one heartbeat timeout for missing nodes") {
  Successor round(1, 4);
  round.come(1, past_of_three());
  CHECK_FALSE(round.world_of(1));
  for (int i = 0; i < 9; ++i) {
    round.wait(1s);
    round.receive(Successor::peer(1), Ping{});
  }
  CHECK(round.state.phase == RoundPhase::Joining);
  round.wait(1s);
  CHECK(round.state.phase == RoundPhase::Running);
}

TEST_CASE("a successor uses the largest counts that members report, including used restarts") {
  Successor round(2, 3);
  Past less = past_of_three();
  less.restarts = 1;
  less.restart_ages = {80s};
  Past more = past_of_three();
  more.rounds = 6;
  more.restarts = 2;
  more.restart_ages = {70s, 5s};
  SECTION("the larger counts first") {
    round.come(1, more);
    round.come(2, less);
  }
  SECTION("the larger counts last") {
    round.come(1, less);
    round.come(2, more);
  }
  REQUIRE(round.world_of(2));
  CHECK(round.world_of(2)->round == 6);
  CHECK(round.world_of(2)->restarts == 2);
  CHECK(round.state.restarts[0] == round.now - 70s);
  CHECK(round.state.restarts[1] == round.now - 5s);
  CHECK(round.now - *round.state.first_world == 90s);
}

TEST_CASE("with equal restart counts the older times win, and reported counts are limited") {
  Successor round(2, 3);
  Past past = past_of_three();
  past.restarts = 2;
  past.restart_ages = {50s, 20s};
  inherit(round.state, past, round.now);
  past.restart_ages = {60s, 10s};
  inherit(round.state, past, round.now);
  CHECK(round.state.restarts == std::vector<Time>{round.now - 60s, round.now - 20s});
  past.restarts = 1 << 30;
  past.rounds = 1 << 30;
  inherit(round.state, past, round.now);
  CHECK(round.state.restarts.size() == 1U << 16);
  CHECK(round.state.restarts.front() == round.now - 60s);
  CHECK(round.state.next_round < 1 << 30);
}

TEST_CASE("a successor with too few nodes waits, then reports which coordinator was lost") {
  Successor round(3, 3);
  round.come(1, past_of_three());
  round.come(2, past_of_three());
  for (int i = 0; i < 20; ++i) {
    round.wait(500ms);
    round.receive(Successor::peer(1), Ping{});
    round.receive(Successor::peer(2), Ping{});
  }
  CHECK(round.sent<Waiting>(Successor::peer(1)).size() <= 3);
  for (int i = 0; i < 51 && round.state.phase == RoundPhase::Joining; ++i) {
    round.wait(1s);
    if (round.state.phase != RoundPhase::Joining) break;
    round.receive(Successor::peer(1), Ping{});
    round.receive(Successor::peer(2), Ping{});
  }
  const auto finish = round.sent<Finish>(Successor::peer(1));
  REQUIRE(finish.size() == 1);
  const NodeLost lost = std::get<NodeLost>(finish[0].outcome.ending);
  CHECK(lost.host == "host0");
  CHECK(lost.is_coordinator);
  CHECK_THAT(lost.reason, ContainsSubstring("no replacement came"));
}

TEST_CASE("a member that returns to the same coordinator does not change its state") {
  Successor round(2, 2);
  round.state.rules.min_uptime = 0s;
  round.come(1, past_of_three());
  round.come(2, past_of_three());
  REQUIRE(round.state.phase == RoundPhase::Running);
  round.leave(Successor::peer(2));
  round.receive(Successor::peer(1), Stopped{5, {}, 0});
  REQUIRE(round.state.phase == RoundPhase::Joining);
  Past past = past_of_three();
  past.rounds = 6;
  past.coordinator = "host1";
  round.come(2, past);
  REQUIRE(round.world_of(2));
  CHECK(round.world_of(2)->round == 6);
}

TEST_CASE("a coordinator that is elected again waits for all previous nodes") {
  Successor round(1, 4);
  round.state.spec.is_back = true;
  round.come(1, past_of_three());
  round.come(2, past_of_three());
  CHECK(round.state.phase == RoundPhase::Joining);
  round.come(3, past_of_three());
  CHECK(round.state.phase == RoundPhase::Running);
}

TEST_CASE("a coordinator continues from the stored record of the previous one") {
  Successor before(2, 4);
  before.come(1, past_of_three());
  before.come(2, past_of_three());
  before.state.restarts = {before.now - 70s, before.now - 5s};
  leave_out(before.state.exclusions, {"host3 at 10.0.0.4", 0}, {3, "host3", 4, "it failed"});
  count_failure(before.state.exclusions, {"host2 at 10.0.0.3", 0});
  const RoundRecord record = record_of(before.state);
  CHECK(record.rounds == before.state.next_round);

  Successor after(2, 4);
  inherit(after.state, record, after.now);
  CHECK(record_of(after.state) == record);
  CHECK(is_left_out(after.state.exclusions, {"host3 at 10.0.0.4", 0}));
  CHECK(count_failure(after.state.exclusions, {"host2 at 10.0.0.3", 0}) == 2);
  // The record has no restart times; members report them.
  CHECK(after.state.restarts == std::vector<Time>{after.now, after.now});
  Past past = past_of_three();
  past.restarts = 2;
  past.restart_ages = {70s, 5s};
  inherit(after.state, past, after.now);
  CHECK(after.state.restarts == std::vector<Time>{after.now - 70s, after.now - 5s});
}

// Agents are identified by their host name and the source address of their connection, which is the
// same for all agents here.
AgentId id_of(int node) { return {"host" + std::to_string(node) + " at 10.0.0.9", 0}; }

Past with_record(NodeRecord record) {
  Past past = past_of_three();
  past.records = {std::move(record)};
  return past;
}

NodeRecord left_out_record(int node) {
  return {.name = id_of(node).first,
          .is_left_out = true,
          .node_rank = 2,
          .round = 4,
          .reason = "it fails"};
}

TEST_CASE("a node that an earlier coordinator excluded is rejected by the next one") {
  Successor round(1, 4);
  round.come(1, with_record(left_out_record(3)));
  round.come(3, std::nullopt);
  const auto refused = round.sent<Refused>(Successor::peer(3));
  REQUIRE(refused.size() == 1);
  CHECK_THAT(refused[0].error.message, ContainsSubstring("it was left out of this job: it fails"));
  CHECK(round.state.exclusions.nodes.at(0).told == LeftOut{2, "host3", 4, "it fails"});
}

TEST_CASE("a node that joined before its exclusion was known is removed, and only that node") {
  Successor round(1, 4);
  const bool is_running = GENERATE(false, true);
  round.come(1, is_running ? std::optional(past_of_three()) : std::nullopt);
  round.come(3, std::nullopt);
  REQUIRE((round.state.phase == RoundPhase::Running) == is_running);
  round.come(2, with_record(left_out_record(3)));
  REQUIRE(round.sent<Finish>(Successor::peer(3)).size() == 1);
  CHECK(round.dropped(Successor::peer(3)));
  CHECK_FALSE(round.dropped(Successor::peer(1)));
  if (is_running) {
    CHECK(round.sent<Stop>(Successor::peer(1)).size() == 1);
    round.receive(Successor::peer(1), Stopped{round.state.round, {}, 0});
  }
  REQUIRE(round.world_of(2));
  CHECK(round.world_of(2)->node_count == 2);
}

TEST_CASE("an excluded node gives up its seat, and the job continues") {
  Successor round(1, 4);
  round.come(1, past_of_three());
  round.come(2, with_record(left_out_record(1)));
  REQUIRE(round.sent<Finish>(Successor::peer(1)).size() == 1);  // the seat ends with its agent
  CHECK(round.sent<Finish>(Successor::peer(2)).empty());
}

TEST_CASE("a node's losses under an earlier coordinator still count under the next one") {
  Successor round(1, 2);
  round.come(1, with_record({.name = id_of(3).first, .losses = 3}));
  CHECK(round.state.known.at(id_of(3)).losses == 3);
}

TEST_CASE("all nodes receive the records for the next coordinator, new nodes at once") {
  RoundSpec spec = successor_spec(1, 3);
  spec.elastic->min_uptime = 0s;
  Successor round(1, 3);
  for (const int node : {1, 2, 3}) round.come(node, std::nullopt);
  REQUIRE(round.state.phase == RoundPhase::Running);
  round.leave(Successor::peer(3));
  const auto told = round.sent<Remember>(Successor::peer(2));
  REQUIRE(told.size() == 1);
  CHECK(told[0].records == std::vector<NodeRecord>{{.name = id_of(3).first, .losses = 1}});
  round.come(4, std::nullopt);
  CHECK(round.sent<Remember>(Successor::peer(4)).at(0).records == told[0].records);
}

TEST_CASE(
    "when half of a thousand nodes are lost together each remaining node gets only a few "
    "messages") {
  constexpr int kNodes = 1000;
  Successor round(1, kNodes);
  for (int node = 1; node <= kNodes; ++node) round.come(node, std::nullopt);
  REQUIRE(round.state.phase == RoundPhase::Running);
  std::size_t messages = 0;
  SECTION("their connections close one by one") {
    for (int node = kNodes / 2 + 1; node <= kNodes; ++node) {
      round.leave(Successor::peer(node));
      messages += round.message_count();
    }
  }
  SECTION("their silence is detected in one sweep") {
    for (int i = 0; i < 20; ++i) {
      round.now += 500ms;
      for (int node = 1; node <= kNodes / 2; ++node) round.receive(Successor::peer(node), Ping{});
      round.event(RoundTick{});
    }
    round.wait(500ms);
    messages += round.message_count();
  }
  CHECK(round.state.present_count == kNodes / 2);
  const auto due = deadline(round.state);
  REQUIRE(due);
  if (!round.state.untold.empty()) CHECK(*due <= round.now + 100ms);
  round.wait(100ms);
  messages += round.message_count();
  CHECK(round.state.untold.empty());
  CHECK(round.state.records.size() == kMostRecords);
  CHECK(messages <= 4 * kNodes);
  CHECK(messages >= kNodes / 2);  // every remaining node got a message
}

TEST_CASE("a coordinator without possible successors sends no records") {
  RoundSpec spec = successor_spec(1, 3);
  spec.term = 0;
  Successor round(1, 3);
  round.state = open_round(spec, round.now);
  for (const int node : {1, 2, 3}) round.come(node, std::nullopt);
  round.leave(Successor::peer(3));
  CHECK(round.sent<Remember>(Successor::peer(2)).empty());
}

TEST_CASE("the number of records is limited, and lost nodes are dropped before excluded nodes") {
  std::vector<NodeRecord> records;
  for (int node = 0; node < 40; ++node)
    note_record(records, {.name = "h" + std::to_string(node), .is_left_out = node < 10});
  CHECK(records.size() == kMostRecords);
  CHECK(std::count_if(records.begin(), records.end(),
                      [](const auto& record) { return record.is_left_out; }) == 10);
  CHECK(records.back().name == "h39");
  note_record(records, {.name = "h3", .losses = 2, .is_left_out = true});
  CHECK(records.size() == kMostRecords);
  CHECK(records.back().losses == 2);
  note_record(records, {.name = std::string(kRecordTextBytes + 1, 'x')});
  CHECK(records.back().name == "h3");
}

TEST_CASE("a hello with a full past fits into the hello frame limit") {
  Hello hello;
  hello.run_id.assign(4096, 'r');
  hello.role.assign(256, 'r');
  hello.host.assign(256, 'h');
  hello.past = past_of_three();
  hello.past->coordinator.assign(256, 'c');
  hello.past->restart_ages.assign(kMostRestartsTold, 1ms);
  const std::string text(kRecordTextBytes, 'x');
  hello.past->records.assign(kMostRecords, {.name = text, .reason = text});
  Failure failure;
  failure.role.assign(256, 'r');
  failure.host.assign(256, 'h');
  failure.program = failure.error_file = failure.stderr_file = std::string(4096, '/');
  failure.message.assign(8192, 'm');
  failure.status = Hung{std::string(4096, 'h')};
  hello.past->failure = AgedFailure{short_failure(failure), 1us};
  CHECK(encode(MemberMessage(hello)).size() <= kHelloFrameLimitBytes);
}

TEST_CASE(
    "after a takeover the earliest failure reported for the latest round is the job's last "
    "failure") {
  // Ages, not times: node 3's clock is an hour behind, and its failure was reported first.
  const auto past_with = [](int rank, std::chrono::microseconds age, int round, WallTime time) {
    Past past = past_of_three();
    past.node_count = 5;
    past.failure = failed(rank, age);
    past.failure->failure.round = round;
    past.failure->failure.time = time;
    return past;
  };
  const WallTime noon{std::chrono::hours(500'000)};
  struct Report {
    int node = 0;
    Past past;
  };
  std::vector<Report> reports{{1, past_with(2, 1500us, 4, noon)},
                              {2, past_with(4, 2500us, 4, noon)},
                              {3, past_with(6, 1000us, 4, noon - 1h)},
                              {4, past_with(8, 90s, 3, noon - 2h)}};
  do {
    Successor round(1, 5);
    for (const Report& report : reports) round.come(report.node, report.past);
    REQUIRE(facts_of(round.state, round.now).last_failure);
    CHECK(facts_of(round.state, round.now).last_failure->rank == 4);
  } while (std::next_permutation(
      reports.begin(), reports.end(),
      [](const Report& one, const Report& other) { return one.node < other.node; }));
}

TEST_CASE("the age decides between two reports within a message delay, not their arrival order") {
  Successor round(1, 4);
  Past victim = past_of_three();
  victim.failure = failed(6, 100us);
  Past cause = past_of_three();
  cause.failure = failed(2, 20'200us);
  round.come(3, victim);
  round.now += 20ms;  // the other node's hello took longer
  round.come(2, cause);
  CHECK(round.state.last_failure->rank == 2);
}

}  // namespace drun::rendezvous
