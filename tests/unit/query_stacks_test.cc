#include <functional>
#include <random>
#include <set>

#include "agent/hang/hang_verdict.h"
#include "rendezvous/coordinator/node_queries.h"
#include "rendezvous/protocol/control_wire.h"
#include "tests/support/catch.h"
#include "tests/support/round_driver.h"

namespace drun::rendezvous {
namespace {

using agent::decode_evidence;
using agent::Evidence;
using agent::NcclPosition;
using agent::RankPositions;
using test::RoundDriver;
using test::running_round;
using namespace std::chrono_literals;

// The observed state of one rank.
struct Stand {
  std::string place = "here";
  bool is_quiet = true;
  std::uint64_t arrived = 0;
  bool is_inside = false;
  NcclPosition nccl = NcclPosition::None;
};

Evidence evidence_of(int rank, const Stand& stand) {
  return {
      .groups = {{.ranks = {{rank, rank}},
                  .doing = stand.arrived == 0 ? ""
                           : stand.is_inside  ? "in all_reduce #" + std::to_string(stand.arrived)
                                              : "last ended all_reduce #" +
                                                   std::to_string(stand.arrived) + ", not in one",
                  .arrived = stand.arrived,
                  .is_inside = stand.is_inside,
                  .is_quiet = stand.is_quiet,
                  .nccl = stand.nccl,
                  .source = "gdb",
                  .lines = {stand.place}}}};
}

Evidence evidence_of(const std::vector<Stand>& stands) {
  Evidence evidence;
  for (std::size_t i = 0; i < stands.size(); ++i)
    merge(evidence, evidence_of(static_cast<int>(i), stands[i]));
  return evidence;
}

// The evidence of a node whose two workers are in the same state.
Evidence answer_of(int node, const Stand& stand = {}) {
  Evidence evidence = evidence_of(2 * node, stand);
  merge(evidence, evidence_of(2 * node + 1, stand));
  return evidence;
}

HangSuspected suspicion(int rank) {
  Failure failure;
  failure.rank = rank;
  failure.local_rank = rank % 2;
  failure.pid = 100 + rank;
  failure.status = Hung{"no output and no CPU time for 60 s"};
  return {0, 200ms, {{.ranks = {{rank, rank}}, .pids = {100 + rank}, .first = failure}}};
}

RankRanges ranges(const std::vector<int>& ranks) {
  RankRanges all;
  for (const int rank : ranks) add_rank(all, rank);
  return all;
}

HangVerdict verdict_on(const Evidence& evidence, const std::vector<int>& suspects) {
  RankPositions positions;
  note(positions, evidence);
  return judge(positions, ranges(suspects));
}

void answer(RoundDriver& round, int node, std::uint64_t number, const Evidence& evidence) {
  round.answer(node, number, agent::encode_evidence(evidence));
}

Evidence stacks_told(const RoundDriver& round, int node, std::uint64_t number) {
  const std::optional<Evidence> evidence = decode_evidence(round.result(node, number).answer);
  REQUIRE(evidence);
  return *evidence;
}

}  // namespace

TEST_CASE("a query of the stacks returns those of all nodes, with equal stacks in one group") {
  RoundDriver round = running_round(3);
  round.ask(1, 7, QueryKind::Stacks);
  const std::uint64_t number = round.number_asked(0);
  CHECK(round.number_asked(2) == number);
  round.ask(2, 9, QueryKind::Stacks);  // gets the result of the open query
  CHECK(round.sent<NodeQuery>(RoundDriver::peer(0)).empty());
  answer(round, 0, number, answer_of(0));
  answer(round, 2, number, answer_of(2));
  CHECK_FALSE(round.has_result(1));
  answer(round, 1, number, answer_of(1, {.place = "there"}));
  const Evidence told = stacks_told(round, 1, 7);
  REQUIRE(told.groups.size() == 2);
  CHECK(ranks_text(told.groups[0].ranks) == "ranks 0, 1, 4, 5");
  CHECK(told.notes.empty());
  CHECK(stacks_told(round, 2, 9) == told);
  CHECK(round.state.phase == RoundPhase::Running);
}

TEST_CASE("a node that does not answer within ten seconds is named") {
  RoundDriver round = running_round(3);
  round.ask(1, 7, QueryKind::Stacks);
  const std::uint64_t number = round.number_asked(1);
  answer(round, 1, number, answer_of(1));
  answer(round, 1, number, answer_of(1));      // a duplicate
  answer(round, 0, number + 1, answer_of(0));  // of no query
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(round.has_result(1));
    for (int node = 0; node < 3; ++node) round.receive(RoundDriver::peer(node), Ping{});
    round.wait(3s);
  }
  for (int node = 0; node < 3; ++node) round.receive(RoundDriver::peer(node), Ping{});
  round.wait(1s);
  CHECK(stacks_told(round, 1, 7).notes ==
        std::vector<std::string>{"node 0 (host0): no answer in 10 s",
                                 "node 2 (host2): no answer in 10 s"});
  answer(round, 0, number, answer_of(0));  // late
  CHECK(round.actions.empty());
}

TEST_CASE("a query of the stacks does not wait for a node that leaves meanwhile") {
  RoundDriver round = running_round(3);
  round.ask(1, 7, QueryKind::Stacks);
  const std::uint64_t number = round.number_asked(1);
  answer(round, 0, number, answer_of(0));
  answer(round, 1, number, answer_of(1));
  round.leave(RoundDriver::peer(2));
  const Evidence told = stacks_told(round, 1, 7);
  REQUIRE(told.notes.size() == 1);
  CHECK_THAT(told.notes[0], ContainsSubstring("node 2 (host2): lost, its connection closed"));
}

TEST_CASE("a query of the stacks ends before the next world begins") {
  RoundDriver round = running_round(2, 1);
  round.ask(1, 7, QueryKind::Stacks);
  const std::uint64_t number = round.number_asked(1);
  answer(round, 1, number, answer_of(1));
  round.receive(RoundDriver::peer(0), Failed{0, test::aged_failure(0)});
  round.receive(RoundDriver::peer(0), Stopped{0, {}, 0});
  round.receive(RoundDriver::peer(1), Stopped{0, {}, 0});
  REQUIRE(round.state.round == 1);
  CHECK(stacks_told(round, 1, 7).groups.size() == 1);
  answer(round, 0, number, answer_of(0));
  CHECK(round.actions.empty());
}

TEST_CASE("stacks of another node's ranks, or none at all, close the connection") {
  const std::string wrong =
      GENERATE(agent::encode_evidence(answer_of(2)), std::string("x"), std::string());
  RoundDriver round = running_round(3);
  round.ask(1, 7, QueryKind::Stacks);
  round.answer(1, round.number_asked(1), wrong);
  CHECK(round.dropped(RoundDriver::peer(1)));
}

TEST_CASE("before and after the world, a query of the stacks finds no workers") {
  RoundDriver round(test::fixed_spec(2));
  round.join(0);
  round.ask(0, 7, QueryKind::Stacks);
  CHECK(round.result(0, 7).note == "no workers run");
}

TEST_CASE("a hung rank is a failure of that rank, and all nodes get the evidence") {
  RoundDriver round = running_round(3, 1);
  round.receive(RoundDriver::peer(1), suspicion(3));
  CHECK(round.sent<NodeQuery>(RoundDriver::peer(0)).empty());  // more suspects may follow
  round.wait(200ms);
  const std::uint64_t number = round.number_asked(0);
  for (const int node : {0, 2}) answer(round, node, number, answer_of(node, {.is_quiet = false}));
  Evidence found = evidence_of(2, {.is_quiet = false});
  merge(found, evidence_of(3, {.place = "there"}));
  answer(round, 1, number, found);
  CHECK(round.state.phase == RoundPhase::Stopping);
  for (int node = 0; node < 3; ++node) {
    const auto hangs = round.sent<HangFound>(RoundDriver::peer(node));
    REQUIRE(hangs.size() == 1);
    CHECK(hangs[0].cause == "rank 3 on node 1 (host1) hung: no output and no CPU time for 60 s");
    CHECK(decode_evidence(hangs[0].evidence)->groups.size() == 2);
    CHECK(round.sent<Stop>(RoundDriver::peer(node)).size() == 1);
  }
  for (int node = 0; node < 3; ++node) round.receive(RoundDriver::peer(node), Stopped{0, {}, 0});
  CHECK(round.state.phase == RoundPhase::Running);
  CHECK(round.state.restarts.size() == 1);
}

TEST_CASE("without restarts a hang ends the job with code 123 and all stacks") {
  RoundDriver round = running_round(3);
  round.receive(RoundDriver::peer(0), suspicion(1));
  round.wait(200ms);
  const std::uint64_t number = round.number_asked(0);
  for (const int node : {1, 2}) answer(round, node, number, answer_of(node, {.is_quiet = false}));
  Evidence found = evidence_of(0, {.is_quiet = false});
  merge(found, evidence_of(1, {.place = "there", .arrived = 4}));
  answer(round, 0, number, found);
  for (int node = 0; node < 3; ++node) round.receive(RoundDriver::peer(node), Stopped{0, {}, 0});
  const auto finish = round.sent<Finish>(RoundDriver::peer(2));
  REQUIRE(finish.size() == 1);
  const auto* failed = std::get_if<WorkersFailed>(&finish[0].outcome.ending);
  REQUIRE(failed != nullptr);
  const Failure& root = failed->failures.front();
  CHECK(root.rank == 1);
  CHECK(root.pid == 101);
  CHECK(exit_code(root.status) == 123);
  CHECK(to_string(root.status) ==
        "hung: no output and no CPU time for 60 s, last ended all_reduce #4, not in one");
  CHECK(root.traceback.find("rank 1:") != std::string::npos);
  CHECK(root.traceback.find("there") != std::string::npos);
}

TEST_CASE("a suspect that is active again when its stack is taken is cleared") {
  RoundDriver round = running_round(3);
  round.receive(RoundDriver::peer(0), suspicion(1));
  round.wait(200ms);
  const std::uint64_t number = round.number_asked(0);
  for (int node = 0; node < 3; ++node)
    answer(round, node, number, answer_of(node, {.is_quiet = false}));
  CHECK(round.state.phase == RoundPhase::Running);
  CHECK_THAT(round.log(), ContainsSubstring("signs of life again"));
  CHECK(round.state.suspects.empty());
}

TEST_CASE("a suspicion about an old round or another node's rank is not investigated") {
  RoundDriver round = running_round(3);
  HangSuspected foreign = suspicion(5);
  round.receive(RoundDriver::peer(0), foreign);
  CHECK(round.dropped(RoundDriver::peer(0)));
  RoundDriver restarted = running_round(3, 1);
  restarted.receive(RoundDriver::peer(1), Failed{0, test::aged_failure(1)});
  for (int node = 0; node < 3; ++node)
    restarted.receive(RoundDriver::peer(node), Stopped{0, {}, 0});
  REQUIRE(restarted.state.round == 1);
  restarted.receive(RoundDriver::peer(1), suspicion(3));
  CHECK(restarted.state.suspects.empty());
}

TEST_CASE("the rank that has begun fewer operations is blamed for the hang") {
  std::vector<Stand> stands(8, {.arrived = 812, .is_inside = true});
  stands[7] = {.place = "there", .arrived = 811};
  const HangVerdict verdict = verdict_on(evidence_of(stands), {0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(verdict.culprits == ranges({7}));
  CHECK(verdict.words == "last ended all_reduce #811, not in one");
  CHECK_FALSE(verdict.are_all);
}

TEST_CASE("ranks that wait for an active rank have not hung") {
  std::vector<Stand> stands(4, {.arrived = 12, .is_inside = true});
  stands[0] = {.place = "evaluating", .is_quiet = false, .arrived = 11};
  const HangVerdict verdict = verdict_on(evidence_of(stands), {1, 2, 3});
  CHECK(verdict.culprits.empty());
  CHECK(verdict.words == "ranks 1-3 wait in all_reduce #12 for rank 0, not silent");
}

TEST_CASE("a rank that waited for one that has gone on during the look has not hung") {
  std::vector<Stand> stands(3, {.arrived = 9, .is_inside = true});
  stands[0] = {.is_quiet = false, .arrived = 11, .is_inside = true};
  CHECK(verdict_on(evidence_of(stands), {1, 2}).culprits.empty());
  // It has hung if it is in no operation, or if the others are silent too.
  stands[1].is_inside = false;
  CHECK(verdict_on(evidence_of(stands), {1, 2}).culprits == ranges({1}));
  stands[0].is_quiet = true;
  stands[1].is_inside = true;
  CHECK(verdict_on(evidence_of(stands), {0, 1, 2}).culprits == ranges({1, 2}));
}

TEST_CASE("ranks in an operation that all ranks have begun have hung only if nothing changes") {
  const auto verdict_after = [](const std::vector<Stand>& stands, const std::vector<int>& suspects,
                                std::optional<std::uint64_t> before) {
    RankPositions positions;
    note(positions, evidence_of(stands));
    return judge(positions, ranges(suspects), before);
  };
  // Rank 0 has computed for a long time and has arrived just before the look.
  std::vector<Stand> stands(3, {.arrived = 11, .is_inside = true});
  stands[0].is_quiet = false;
  const HangVerdict first = verdict_after(stands, {1, 2}, {});
  CHECK(first.culprits.empty());
  CHECK(first.begun_by_all == 11);
  CHECK(first.words == "ranks 1, 2 wait in all_reduce #11, which all ranks have begun");
  CHECK(verdict_after(stands, {1, 2}, 10).culprits.empty());
  CHECK(verdict_after(stands, {1, 2}, 11).culprits == ranges({1, 2}));
  // A rank outside of the operation has hung.
  stands[2].is_inside = false;
  CHECK(verdict_after(stands, {1, 2}, {}).culprits == ranges({1, 2}));
  // So have all if all are silent.
  stands.assign(3, {.arrived = 11, .is_inside = true});
  CHECK(verdict_after(stands, {0, 1, 2}, {}).are_all);
}

TEST_CASE("the rank that lags in NCCL is blamed for the hang") {
  std::vector<Stand> stands(8, {.nccl = NcclPosition::Ahead});
  stands[5].nccl = NcclPosition::Behind;
  CHECK(verdict_on(evidence_of(stands), {0, 1, 2, 3, 4, 5, 6, 7}).culprits == ranges({5}));
  // The other ranks only spin.
  for (const int rank : {0, 1, 2, 3, 4, 6, 7})
    stands[static_cast<std::size_t>(rank)].is_quiet = false;
  CHECK(verdict_on(evidence_of(stands), {5}).culprits == ranges({5}));
}

TEST_CASE("ranks that wait in NCCL for an active rank have not hung") {
  std::vector<Stand> stands(4, {.nccl = NcclPosition::Ahead});
  stands[2] = {.place = "evaluating", .is_quiet = false, .nccl = NcclPosition::Behind};
  const HangVerdict verdict = verdict_on(evidence_of(stands), {0, 1, 3});
  CHECK(verdict.culprits.empty());
  CHECK(verdict.words == "ranks 0, 1, 3 wait in NCCL for rank 2, not silent");
  // Rank 3 does not wait.
  stands[3].nccl = NcclPosition::None;
  CHECK(verdict_on(evidence_of(stands), {0, 1, 3}).culprits == ranges({0, 1, 3}));
}

TEST_CASE("operation counts of worker_lib take precedence over those of NCCL") {
  std::vector<Stand> stands(4, {.arrived = 12, .is_inside = true, .nccl = NcclPosition::None});
  stands[1] = {.arrived = 11};
  stands[2].nccl = NcclPosition::Behind;
  CHECK(verdict_on(evidence_of(stands), {0, 1, 2, 3}).culprits == ranges({1}));
}

TEST_CASE(
    "of many silent ranks those with different stacks are blamed, or all if none stands out") {
  std::vector<Stand> stands(8);
  stands[2].place = "there";
  CHECK(verdict_on(evidence_of(stands), {0, 1, 2, 3, 4, 5, 6, 7}).culprits == ranges({2}));
  stands[2].place = "here";
  const HangVerdict all = verdict_on(evidence_of(stands), {0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(all.are_all);
  CHECK(all.culprits == ranges({0, 1, 2, 3, 4, 5, 6, 7}));
  stands.assign(2, {});
  stands[1].place = "there";
  CHECK(verdict_on(evidence_of(stands), {0, 1}).are_all);  // no majority
}

TEST_CASE("silent ranks are blamed if other ranks are busy") {
  std::vector<Stand> stands(4, {.is_quiet = false});
  stands[1].is_quiet = true;
  CHECK(verdict_on(evidence_of(stands), {1}).culprits == ranges({1}));
  // Its node has not answered, so the suspicion stands.
  CHECK(verdict_on({}, {1}).culprits == ranges({1}));
}

namespace {

constexpr int kManyNodes = 2500;
constexpr int kWorkersOfEach = 8;
constexpr int kManyRanks = kManyNodes * kWorkersOfEach;

// Reports all 20,000 ranks as suspects, in the states given by `stand_of`. Returns the outcome sent
// to all nodes.
WorkersFailed after_hang_of_all(const std::function<Stand(int rank)>& stand_of) {
  RoundDriver round(test::fixed_spec(kManyNodes));
  for (int node = 0; node < kManyNodes; ++node) {
    Hello hello = round.hello(node);
    hello.local_world_size = kWorkersOfEach;
    round.join(RoundDriver::peer(node), hello);
  }
  REQUIRE(round.state.world_size == kManyRanks);
  for (int node = 0; node < kManyNodes; ++node) {
    std::vector<Failure> suspects(kWorkersOfEach);
    for (int i = 0; i < kWorkersOfEach; ++i) {
      suspects[static_cast<std::size_t>(i)].rank = node * kWorkersOfEach + i;
      suspects[static_cast<std::size_t>(i)].pid = 100'000 + node * kWorkersOfEach + i;
      suspects[static_cast<std::size_t>(i)].status = Hung{"no output for 60 s"};
    }
    for (const auto& groups : suspect_messages(suspects)) {
      CHECK(groups.size() == 1);
      round.receive(RoundDriver::peer(node), HangSuspected{0, 200ms, groups});
    }
  }
  round.wait(200ms);
  const std::uint64_t number = round.number_asked(0);
  for (int node = 0; node < kManyNodes; ++node) {
    Evidence found;
    for (int i = 0; i < kWorkersOfEach; ++i) {
      const int rank = node * kWorkersOfEach + i;
      gather(found, evidence_of(rank, stand_of(rank)));
    }
    settle(found);
    answer(round, node, number, found);
  }
  REQUIRE(round.state.phase == RoundPhase::Stopping);
  const auto hangs = round.sent<HangFound>(RoundDriver::peer(kManyNodes - 1));
  REQUIRE(hangs.size() == 1);
  CHECK(encode(CoordinatorMessage(hangs[0])).size() < kFrameLimitBytes);
  for (int node = 0; node < kManyNodes; ++node)
    round.receive(RoundDriver::peer(node), Stopped{0, {}, 0});
  const auto finish = round.sent<Finish>(RoundDriver::peer(7));
  REQUIRE(finish.size() == 1);
  const Outcome& outcome = finish[0].outcome;
  CHECK(encode(CoordinatorMessage(finish[0])).size() < kFrameLimitBytes);
  const WorkersFailed failed = std::get<WorkersFailed>(outcome.ending);
  for (const Failure& failure : failed.failures) {
    CHECK(failure.pid == 100'000 + failure.rank);
    CHECK(failure.node_rank == failure.rank / kWorkersOfEach);
    CHECK(failure.local_rank == failure.rank % kWorkersOfEach);
  }
  CHECK((failed.failures.size() == 1 || outcome.failures_left_out > 0));
  return failed;
}

}  // namespace

TEST_CASE("if all of 20,000 ranks hang, all of them are blamed") {
  const WorkersFailed failed = after_hang_of_all([](int) { return Stand{}; });
  CHECK(failed.failures.front().rank == 0);
  CHECK(failed.failures.front().message == "ranks 0-19999 hang alike");
  CHECK_THAT(to_string(failed.failures.front().status), ContainsSubstring("as all ranks do"));
}

TEST_CASE("of 20,000 silent ranks the one that is behind is blamed, at any position") {
  const int culprit = GENERATE(0, 4095, 4096, 19'999);
  const WorkersFailed failed = after_hang_of_all([culprit](int rank) {
    return rank == culprit ? Stand{.arrived = 811} : Stand{.arrived = 812, .is_inside = true};
  });
  REQUIRE(failed.failures.size() == 1);
  CHECK(failed.failures.front().rank == culprit);
}

TEST_CASE("of 20,000 silent ranks every second one is blamed if every second one is behind") {
  const WorkersFailed failed = after_hang_of_all([](int rank) {
    return rank % 2 == 1 ? Stand{.arrived = 811} : Stand{.arrived = 812, .is_inside = true};
  });
  CHECK(failed.failures.front().rank == 1);
  CHECK(failed.failures.at(1).rank == 3);
  CHECK_THAT(failed.failures.front().message, ContainsSubstring("ranks 1, 3, 5, 7"));
  CHECK_THAT(failed.failures.front().message, ContainsSubstring("and 9936 more hang alike"));
}

TEST_CASE("operations on rank ranges match operations on sets of ranks") {
  std::mt19937 random(7);
  for (int run = 0; run < 300; ++run) {
    std::set<int> one;
    std::set<int> other;
    for (int i = 0; i < 20; ++i) {
      one.insert(static_cast<int>(random() % 40));
      other.insert(static_cast<int>(random() % 40));
    }
    const auto ranges_of = [](const std::set<int>& ranks) {
      return ranges({ranks.begin(), ranks.end()});
    };
    std::set<int> both;
    std::set<int> rest;
    for (const int rank : one) (other.contains(rank) ? both : rest).insert(rank);
    CAPTURE(run);
    CHECK(intersection(ranges_of(one), ranges_of(other)) == ranges_of(both));
    CHECK(difference(ranges_of(one), ranges_of(other)) == ranges_of(rest));
  }
}

TEST_CASE("the first report about a suspect is kept, and pids are assigned to their ranks") {
  const auto group = [](RankRanges ranks, std::vector<int> pids, const std::string& how) {
    SuspectGroup made{.ranks = std::move(ranks), .pids = std::move(pids)};
    made.first.status = Hung{how};
    return made;
  };
  Suspects suspects;
  const Suspects::Node node{.node_rank = 3, .base_rank = 10, .workers = 8};
  REQUIRE(suspects.add(node, {group({{11, 12}}, {1011, 1012}, "first")}));
  REQUIRE(suspects.add(node, {group({{10, 13}, {16, 16}}, {10, 11, 12, 1013, 1016}, "second")}));
  CHECK(suspects.ranks() == RankRanges{{10, 13}, {16, 16}});
  CHECK(suspects.failure_of(12).pid == 1012);
  CHECK(suspects.failure_of(12).status == ExitStatus(Hung{"first"}));
  CHECK(suspects.failure_of(13).pid == 1013);
  CHECK(suspects.failure_of(16).pid == 1016);
  CHECK(suspects.failure_of(16).local_rank == 6);
  CHECK(suspects.failure_of(16).status == ExitStatus(Hung{"second"}));
  for (int i = 0; i < 200; ++i) {  // more groups than the limit: their ranks are still kept
    const Suspects::Node other{.node_rank = 4, .base_rank = 100, .workers = 1000};
    REQUIRE(suspects.add(other, {group({{100 + 5 * ((i * 7) % 200), 100 + 5 * ((i * 7) % 200)}},
                                       {5 * ((i * 7) % 200)}, std::to_string(i))}));
  }
  CHECK(count_of(suspects.ranks()) == 205);
  for (int i = 0; i < 200; ++i) CHECK(suspects.failure_of(100 + 5 * i).pid == 5 * i);
  CHECK_FALSE(suspects.add(node, {group({{17, 18}}, {}, "not its own")}));
  CHECK_FALSE(suspects.add(node, {group({{12, 12}, {11, 11}}, {}, "in disorder")}));
  CHECK_FALSE(suspects.add(node, {group({}, {}, "nobody")}));
  CHECK_FALSE(suspects.add(node, {SuspectGroup{.ranks = {{11, 11}}}}));
}

}  // namespace drun::rendezvous
