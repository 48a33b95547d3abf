#include "agent/faults.h"

#include <set>

#include "tests/support/catch.h"

namespace drun {
namespace {

using namespace std::chrono_literals;
using Time = FaultSchedule::Time;

FaultPlan plan_of(const std::string& text) {
  Result<FaultPlan> plan = parse_faults(text);
  INFO(text << (plan ? "" : plan.error().message));
  REQUIRE(plan);
  return *plan;
}

std::string objection(const std::string& text) {
  const Result<FaultPlan> plan = parse_faults(text);
  return plan ? "none" : plan.error().message;
}

World world_of(int round, int node_rank) {
  World world;
  world.round = round;
  world.node_rank = node_rank;
  world.node_count = 3;
  world.local_world_size = 2;
  world.base_rank = 2 * node_rank;
  world.world_size = 6;
  return world;
}

std::vector<std::string> texts(const std::vector<DueFault>& due) {
  std::vector<std::string> all;
  for (const DueFault& each : due)
    all.push_back(each.fault.text +
                  (each.local_rank ? " local " + std::to_string(*each.local_rank) : ""));
  return all;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("faults are parsed with their target and time") {
  const FaultPlan plan = plan_of(
      "kill:rank=3@20s,exit:rank=1:code=9@500ms,stop:rank=2@5,oom:rank=0@1.5s,kill:node=1@2m,"
      "freeze:node=1@round=1,cut:node=2@round=2+3s,random:seed=7:every=10s");
  REQUIRE(plan.faults.size() == 7);
  CHECK(plan.faults[0] ==
        Fault{.kind = FaultKind::Kill, .target = 3, .after = 20s, .text = "kill:rank=3@20s"});
  CHECK(plan.faults[1] == Fault{.kind = FaultKind::Exit,
                                .target = 1,
                                .code = 9,
                                .after = 500ms,
                                .text = "exit:rank=1:code=9@500ms"});
  CHECK(plan.faults[2].kind == FaultKind::Stop);
  CHECK(plan.faults[2].after == 5s);
  CHECK(plan.faults[3].kind == FaultKind::OutOfMemory);
  CHECK(plan.faults[3].after == 1500ms);
  CHECK(plan.faults[4].kind == FaultKind::KillNode);
  CHECK(plan.faults[4].after == 2min);
  CHECK(plan.faults[5].round == 1);
  CHECK(plan.faults[5].after == 0s);
  CHECK(plan.faults[6].kind == FaultKind::CutNode);
  CHECK(plan.faults[6].round == 2);
  CHECK(plan.faults[6].after == 3s);
  REQUIRE(plan.random);
  CHECK(plan.random->seed == 7);
  CHECK(plan.random->every == 10s);
  CHECK(plan_of("exit:rank=1@5s").faults[0].code == 1);
}

TEST_CASE("the error for an invalid fault names the invalid part") {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "an empty fault"},
      {"kill:rank=3@20s,", "an empty fault"},
      {"crash:rank=3@20s", "\"crash\": expected kill"},
      {"kill@20s", "\"kill\": expected what it is of"},
      {"kill:rank=x@20s", "\"rank=x\": expected rank=N or node=N"},
      {"kill:rank=-1@20s", "\"rank=-1\""},
      {"kill:rank=@20s", "\"rank=\""},
      {"stop:node=1@20s", "\"node=1\": expected rank=N"},
      {"cut:rank=1@20s", "\"rank=1\": expected node=N"},
      {"kill:rank=3", "no time"},
      {"kill:rank=3@", "\"\": expected a time"},
      {"kill:rank=3@soon", "\"soon\": expected a time"},
      {"kill:rank=3@-5s", "\"-5s\": expected a time"},
      {"kill:rank=3@nan", "\"nan\""},
      {"kill:rank=3@1e9", "\"1e9\""},
      {"kill:rank=3@99999999h", "\"99999999h\""},
      {"kill:rank=3@round=x+1s", "\"round=x+1s\": expected the number of a round"},
      {"kill:rank=3@round=1+x", "\"x\": expected a time"},
      {"exit:rank=3:code=0@1s", "\"code=0\": expected an exit code"},
      {"exit:rank=3:code=256@1s", "\"code=256\""},
      {"kill:rank=3:code=9@1s", "\"code=9\": not expected here"},
      {"random", "it needs every=TIME"},
      {"random:seed=7", "it needs every=TIME"},
      {"random:seed=x:every=1s", "\"seed=x\""},
      {"random:every=1ms", "\"every=1ms\": expected a time of 100 ms or more"},
      {"random:every=1s@5s", "\"@5s\""},
      {"random:every=1s,random:every=2s", "it is there twice"},
      {"random:other=1:every=1s", "\"other=1\""},
  };
  for (const auto& [text, part] : cases) {
    INFO(text);
    CHECK_THAT(objection(text), ContainsSubstring(part));
  }
  std::string many = "kill:rank=0@1s";
  for (std::size_t i = 0; i < kMostFaults; ++i) many += ",kill:rank=0@1s";
  CHECK_THAT(objection(many), ContainsSubstring("over 64 faults"));
}

TEST_CASE("faults of ranks and nodes that the job does not have are rejected") {
  const FaultPlan plan = plan_of("kill:rank=3@1s,kill:node=2@1s");
  CHECK(check_faults(plan, {}));
  CHECK(check_faults(plan, {.nodes = 3, .workers = 4}));
  CHECK(check_faults(plan, {.nodes = 3, .workers = 3}).error().message ==
        "kill:rank=3@1s: \"rank=3\": the job has ranks 0 to 2");
  CHECK(check_faults(plan, {.nodes = 2, .workers = 4}).error().message ==
        "kill:node=2@1s: \"node=2\": the job has nodes 0 to 1");
}

TEST_CASE("each node injects its own faults once and at their time") {
  const FaultPlan plan =
      plan_of("kill:rank=3@2s,stop:rank=0@1s,kill:node=1@4s,exit:rank=2:code=5@round=1+1s");
  const Time begin = Time{} + 100s;
  FaultSchedule schedule(plan);
  CHECK(!schedule.deadline());
  CHECK(schedule.take_due(begin).empty());
  schedule.begin_round(world_of(0, 1), 0, begin);
  REQUIRE(schedule.deadline());
  CHECK(*schedule.deadline() == begin + 1s);
  CHECK(schedule.take_due(begin + 1s).empty());  // a fault of another node
  schedule.on_announced("stop:rank=0@1s", begin + 1s);
  CHECK(*schedule.deadline() == begin + 2s);
  CHECK(schedule.take_due(begin + 1999ms).empty());
  CHECK(texts(schedule.take_due(begin + 2s)) == Texts{"kill:rank=3@2s local 1"});
  schedule.on_announced("kill:rank=3@2s", begin + 2s);
  CHECK(schedule.take_due(begin + 3s).empty());
  schedule.end_round();
  CHECK(!schedule.deadline());
  // The fault is due between rounds.
  CHECK(schedule.take_due(begin + 5s).empty());
  schedule.begin_round(world_of(1, 1), 0, begin + 6s);
  CHECK(*schedule.deadline() == begin + 4s);
  CHECK(texts(schedule.take_due(begin + 6s)) == Texts{"kill:node=1@4s"});
  CHECK(*schedule.deadline() == begin + 7s);
  CHECK(texts(schedule.take_due(begin + 7s)) == Texts{"exit:rank=2:code=5@round=1+1s local 0"});
  CHECK(!schedule.deadline());
}

TEST_CASE(
    "a fault that one node injected is not injected again by the next node with its node rank") {
  const Time begin = Time{} + 100s;
  FaultSchedule killed(plan_of("kill:node=1@4s"));
  FaultSchedule other(plan_of("kill:node=1@4s"));
  killed.begin_round(world_of(0, 1), 0, begin);
  other.begin_round(world_of(0, 2), 0, begin + 20ms);  // its clock is behind
  CHECK(texts(killed.take_due(begin + 4s)) == Texts{"kill:node=1@4s"});
  other.on_announced("kill:node=1@4s", begin + 4s);
  CHECK(!other.deadline());
  other.end_round();
  other.begin_round(world_of(1, 1), 0, begin + 4010ms);
  CHECK(!other.deadline());
  CHECK(other.take_due(begin + 10s).empty());
}

TEST_CASE("a fault that was not injected before the round ended is left for the next round") {
  const Time begin = Time{} + 100s;
  FaultSchedule first(plan_of("kill:node=1@4s"));
  FaultSchedule other(plan_of("kill:node=1@4s"));
  first.begin_round(world_of(0, 1), 0, begin + 20ms);
  other.begin_round(world_of(0, 2), 0, begin);
  // It is due by the clock of one node, and the round ends.
  CHECK(other.take_due(begin + 4s).empty());
  CHECK(!other.deadline());
  CHECK(first.take_due(begin + 4s).empty());
  first.end_round();
  other.end_round();
  // The nodes swap their node ranks.
  first.begin_round(world_of(1, 2), 0, begin + 5s);
  other.begin_round(world_of(1, 1), 0, begin + 5s);
  CHECK(first.take_due(begin + 5s).empty());
  CHECK(texts(other.take_due(begin + 5s)) == Texts{"kill:node=1@4s"});
  // Announced, but not forwarded by the coordinator, so it was not injected.
  other.begin_round(world_of(2, 1), 0, begin + 6s);
  CHECK(texts(other.take_due(begin + 6s)) == Texts{"kill:node=1@4s"});
  other.on_announced("kill:node=1@4s", begin + 6s);
  other.begin_round(world_of(3, 1), 0, begin + 7s);
  CHECK(other.take_due(begin + 7s).empty());
}

TEST_CASE("a fault whose target did not run at its time is not injected in a later round") {
  const Time begin = Time{} + 100s;
  FaultSchedule schedule(plan_of("kill:rank=6@1s"));
  schedule.begin_round(world_of(0, 1), 0, begin);  // ranks 0 to 5
  CHECK(schedule.take_due(begin + 1s).empty());
  World larger = world_of(1, 1);
  larger.base_rank = 6;
  larger.world_size = 8;
  schedule.begin_round(larger, 0, begin + 2s);
  CHECK(schedule.take_due(begin + 2s).empty());
}

TEST_CASE("a random fault of another node is not injected again in the next round") {
  const Time begin = Time{} + 100s;
  FaultSchedule schedule(plan_of("random:seed=7:every=10s"));
  schedule.begin_round(world_of(0, 2), 0, begin + 50ms);
  schedule.on_announced("random:seed=7:every=10s kill:rank=1", begin + 10s);
  World alone = world_of(1, 0);
  alone.local_world_size = alone.world_size = 1;
  schedule.begin_round(alone, 0, begin + 10020ms);
  CHECK(*schedule.deadline() == begin + 20050ms);
}

TEST_CASE("a node that joins in a later round injects only faults that name a round") {
  const Time begin = Time{} + 100s;
  FaultSchedule schedule(plan_of("kill:rank=0@1s,stop:rank=1@round=2+1s,random:every=1s"));
  schedule.begin_round(world_of(2, 0), 0, begin);
  CHECK(texts(schedule.take_due(begin + 10s)) == Texts{"stop:rank=1@round=2+1s local 1"});
}

TEST_CASE("fault times count from the first round of the program, not from the preflight check") {
  const Time begin = Time{} + 100s;
  FaultSchedule schedule(plan_of("kill:rank=0@1s"));
  World preflight = world_of(0, 0);
  preflight.is_preflight = true;
  schedule.begin_round(preflight, 1, begin);
  CHECK(!schedule.deadline());
  schedule.begin_round(world_of(1, 0), 1, begin + 10s);
  CHECK(*schedule.deadline() == begin + 11s);
}

TEST_CASE("random faults are the same on every node, and each is injected by one node") {
  const FaultPlan plan = plan_of("random:seed=7:every=10s");
  const Time begin = Time{} + 100s;
  const auto run = [&](const FaultPlan& of) {
    std::vector<FaultSchedule> nodes(3, FaultSchedule(of));
    for (int node = 0; node < 3; ++node)
      nodes[static_cast<std::size_t>(node)].begin_round(world_of(0, node), 0, begin);
    std::vector<int> ranks;
    for (int i = 1; i <= 60; ++i) {
      std::size_t count = 0;
      for (FaultSchedule& node : nodes) {
        CHECK(*node.deadline() == begin + 10s * i);
        for (const DueFault& due : node.take_due(begin + 10s * i)) {
          ++count;
          ranks.push_back(due.fault.target);
        }
      }
      CHECK(count == 1);
    }
    return ranks;
  };
  const std::vector<int> ranks = run(plan);
  CHECK(ranks == run(plan));
  CHECK(ranks != run(plan_of("random:seed=8:every=10s")));
  CHECK(std::set<int>(ranks.begin(), ranks.end()) == std::set<int>{0, 1, 2, 3, 4, 5});

  // Faults that are due between rounds are skipped.
  FaultSchedule schedule(plan);
  World alone = world_of(0, 0);
  alone.local_world_size = alone.world_size = 6;
  schedule.begin_round(alone, 0, begin);
  schedule.end_round();
  alone.round = 1;
  schedule.begin_round(alone, 0, begin + 35s);
  CHECK(schedule.take_due(begin + 35s).empty());
  CHECK(*schedule.deadline() == begin + 40s);
  CHECK(schedule.take_due(begin + 40s).size() == 1);
}

TEST_CASE(
    "the outcome lists faults with their consequences and marks the failures that they caused") {
  const FaultPlan plan = plan_of("kill:rank=3@2s,stop:rank=0@9s");
  Failure failure;
  failure.rank = 3;
  failure.node_rank = 1;
  failure.round = 1;
  failure.status = Killed{9};
  Failure other = failure;
  other.rank = 2;
  Outcome outcome{.ending = WorkersFailed{{failure, other}}};
  InjectedFault first{.fault = "kill:rank=3@2s", .time = WallTime{}, .rank = 3, .node_rank = 1};
  first.round = 0;
  first.followed = "round 1 began 0.1 s later";
  InjectedFault second = first;
  second.round = 1;
  second.followed.clear();
  settle_faults(outcome, {first, second}, plan);
  REQUIRE(outcome.faults.size() == 3);
  CHECK(outcome.faults[0] == first);
  CHECK_THAT(outcome.faults[1].followed, ContainsSubstring("the job failed: rank 3 on node 1"));
  CHECK(outcome.faults[2].fault == "stop:rank=0@9s");
  CHECK(!outcome.faults[2].time);
  CHECK_THAT(outcome.faults[2].followed, ContainsSubstring("not injected"));
  const auto& failures = std::get<WorkersFailed>(outcome.ending).failures;
  CHECK(failures[0].injected == "kill:rank=3@2s");
  CHECK(failures[1].injected.empty());
}

}  // namespace drun
