// Tests the exclusion of nodes whose workers fail repeatedly from an elastic job.
#include "rendezvous/job/job_record.h"

#include "tests/support/catch.h"
#include "tests/support/elastic_job.h"

namespace drun::rendezvous {
namespace {

using test::aged_failure;
using test::RoundDriver;
using namespace std::chrono_literals;

// A job of up to three nodes, with the coordinator on node 0.
struct ExclusionJob : test::ElasticJob {
  ExclusionJob(int least, int exclude_after) : ElasticJob(spec(least, exclude_after)) {}
  static RoundSpec spec(int least, int exclude_after) {
    RoundSpec spec = test::elastic_spec(least, 3);
    spec.elastic->exclude_after = exclude_after;
    spec.max_restarts = 9;
    return spec;
  }
  // Fails a worker on `node` first, then stops all nodes.
  void fail(int node) {
    const int count = static_cast<int>(state.nodes.size());
    std::vector<Peer> peers;
    for (const RoundNode& each : state.nodes) peers.push_back(each.peer);
    const int round = state.round;
    std::vector<RoundAction> all;
    const auto keep = [&] { all.insert(all.end(), actions.begin(), actions.end()); };
    receive(peers[static_cast<std::size_t>(node)], Failed{round, aged_failure(node)});
    keep();
    for (int each = 0; each < count; ++each) {
      std::vector<AgedFailure> failures;
      if (each == node) failures.push_back(aged_failure(node));
      receive(peers[static_cast<std::size_t>(each)], Stopped{round, failures, 0});
      keep();
    }
    actions = all;
  }
};

ExclusionJob running_with_exclusion(int least, int exclude_after) {
  ExclusionJob job(least, exclude_after);
  for (int node = 0; node < 3; ++node) job.come(node);
  REQUIRE(job.state.phase == RoundPhase::Running);
  return job;
}

constexpr const char* kTwice =
    "its workers were the first to fail in 2 rounds in a row (--exclude-after=2)";

}  // namespace

TEST_CASE(
    "consecutive failures are counted per node, and another node's failure resets the count") {
  Exclusions exclusions;
  const AgentId one{"a at 10.0.0.1", 0};
  const AgentId other{"a at 10.0.0.1", 1};
  CHECK(count_failure(exclusions, one) == 1);
  CHECK(count_failure(exclusions, one) == 2);
  CHECK(count_failure(exclusions, other) == 1);
  CHECK(count_failure(exclusions, one) == 1);
  CHECK_FALSE(exclusion_objection(exclusions, one));
  leave_out(exclusions, one, {3, "a", 7, "it fails"});
  CHECK(is_left_out(exclusions, one));
  CHECK_FALSE(is_left_out(exclusions, other));
  CHECK(exclusion_objection(exclusions, one)->code == ErrorCode::Refused);
  CHECK(count_failure(exclusions, one) == 1);
  CHECK(all_left_out(exclusions) == std::vector<LeftOut>{{3, "a", 7, "it fails"}});
}

TEST_CASE(
    "a node that fails twice in a row is replaced by a spare, and all nodes receive the reason") {
  ExclusionJob job = running_with_exclusion(3, 2);
  job.come(3);
  job.fail(1);
  CHECK(job.sent<NodeLeftOut>(RoundDriver::peer(1)).empty());
  REQUIRE(job.world_of(1)->restarts == 1);
  job.fail(1);
  const LeftOut told{1, "host1", 1, kTwice};
  for (const int node : {0, 1, 2, 3}) {
    const auto said = job.sent<NodeLeftOut>(RoundDriver::peer(node));
    REQUIRE(said.size() == 1);
    CHECK(said[0].node == told);
  }
  const auto finish = job.sent<Finish>(RoundDriver::peer(1));
  REQUIRE(finish.size() == 1);
  CHECK(std::get<WorkersFailed>(finish[0].outcome.ending).failures.front().node_rank == 1);
  CHECK(finish[0].outcome.left_out == std::vector<LeftOut>{told});
  CHECK(job.dropped(RoundDriver::peer(1)));
  REQUIRE(job.state.phase == RoundPhase::Running);
  CHECK(job.world_of(3)->node_rank == 1);
  CHECK(job.world_of(3)->restarts == 2);
  for (const int node : {0, 2, 3}) job.receive(RoundDriver::peer(node), AllReturned{2});
  const Outcome outcome = job.sent<Finish>(RoundDriver::peer(0)).at(0).outcome;
  CHECK(outcome.ending == Ending(Succeeded{}));
  CHECK(outcome.left_out == std::vector<LeftOut>{told});
}

TEST_CASE("a node is not excluded if other nodes fail in between") {
  ExclusionJob job = running_with_exclusion(2, 2);
  for (const int node : {1, 2, 1, 2}) job.fail(node);
  CHECK(job.state.nodes.size() == 3);
  CHECK(job.state.exclusions.nodes.empty());
}

TEST_CASE("a lost node neither counts as a failure nor resets the count") {
  ExclusionJob job = running_with_exclusion(2, 2);
  job.fail(1);
  job.leave(RoundDriver::peer(2));
  for (const int node : {0, 1}) job.stopped(node);
  REQUIRE(job.state.phase == RoundPhase::Running);
  job.come(3);
  job.come(4);
  job.live(6s);
  for (const int node : {0, 1}) job.stopped(node);
  REQUIRE(job.state.nodes.size() == 3);
  job.fail(1);
  CHECK(job.sent<Finish>(RoundDriver::peer(1)).size() == 1);
}

TEST_CASE("an excluded node is rejected on any later connection") {
  ExclusionJob job = running_with_exclusion(2, 1);
  job.fail(2);
  REQUIRE(job.state.phase == RoundPhase::Running);
  CHECK(job.state.nodes.size() == 2);
  job.come_as(77, 2, 77);
  const Error error = job.sent<Refused>(77).at(0).error;
  CHECK(error.code == ErrorCode::Refused);
  CHECK_THAT(error.message, ContainsSubstring("first to fail in a round (--exclude-after=1)"));
  job.live(60s);
  CHECK(job.state.phase == RoundPhase::Running);
}

TEST_CASE("a failed node that reconnects while the others stop is excluded, too") {
  ExclusionJob job = running_with_exclusion(2, 1);
  job.receive(RoundDriver::peer(1), Failed{0, aged_failure(1)});
  job.leave(RoundDriver::peer(1));
  job.come_as(77, 1, 77);
  job.stopped(0);
  job.stopped(2);
  CHECK(job.sent<Finish>(77).size() == 1);
  CHECK(job.dropped(77));
  CHECK(job.state.line.empty());
  CHECK(job.state.nodes.size() == 2);
}

TEST_CASE("the coordinator's own node is never excluded, and the log gives the reason") {
  ExclusionJob job = running_with_exclusion(2, 1);
  job.fail(0);
  CHECK_THAT(job.log(), ContainsSubstring("node 0 (host0) is not left out, as the others have "
                                          "joined it"));
  CHECK(job.state.nodes.size() == 3);
}

TEST_CASE("without a restart left the job ends without an exclusion") {
  RoundSpec spec = ExclusionJob::spec(2, 1);
  spec.max_restarts = 0;
  test::ElasticJob job(spec);
  for (int node = 0; node < 3; ++node) job.come(node);
  job.receive(RoundDriver::peer(1), Failed{0, aged_failure(1)});
  job.stopped(0);
  job.stopped(1, {aged_failure(1)});
  job.stopped(2);
  CHECK(job.sent<Finish>(RoundDriver::peer(0)).at(0).outcome.left_out.empty());
}

TEST_CASE("with too few nodes left and no spare the job waits, then ends with the failure") {
  ExclusionJob job = running_with_exclusion(3, 1);
  job.fail(1);
  REQUIRE(job.state.phase == RoundPhase::Joining);
  SECTION("a replacement joins") {
    job.live(60s);
    job.come(5);
    CHECK(job.world_of(5)->node_rank == 1);
  }
  SECTION("no replacement joins") {
    job.live(10min + 1s);
    const Outcome outcome = job.sent<Finish>(RoundDriver::peer(0)).at(0).outcome;
    CHECK(std::get<WorkersFailed>(outcome.ending).failures.front().node_rank == 1);
    REQUIRE(outcome.left_out.size() == 1);
    CHECK_THAT(outcome.left_out[0].reason,
               ContainsSubstring("; no replacement came: 2 of 3 nodes joined"));
  }
}

}  // namespace drun::rendezvous
