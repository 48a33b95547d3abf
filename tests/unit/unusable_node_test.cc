// Nodes where a process survives SIGKILL: no new round starts on them.
#include "tests/support/catch.h"
#include "tests/support/elastic_job.h"
#include "tests/support/member_driver.h"

namespace drun::rendezvous {
namespace {

using test::aged_failure;
using test::ElasticJob;
using test::MemberDriver;
using test::RoundDriver;
using namespace std::chrono_literals;

constexpr const char* kReason = "SIGKILL does not end pid 7 (python, rank 1)";

// Makes the first round fail on node 1. Node `unusable` reports a process that survives SIGKILL.
void fail_round(RoundDriver& job, int unusable) {
  const int nodes = static_cast<int>(job.state.nodes.size());
  job.receive(RoundDriver::peer(1), Failed{0, aged_failure(1)});
  std::vector<RoundAction> all;
  for (int node = 0; node < nodes; ++node) {
    Stopped stopped{.round = 0};
    if (node == 1) stopped.failures.push_back(aged_failure(1));
    if (node == unusable) stopped.unusable = kReason;
    job.receive(RoundDriver::peer(node), stopped);
    all.insert(all.end(), job.actions.begin(), job.actions.end());
  }
  job.actions = all;
}

NodeLost loss_in(const RoundDriver& job, int node) {
  const auto finished = job.sent<Finish>(RoundDriver::peer(node));
  REQUIRE(finished.size() == 1);
  const auto* lost = std::get_if<NodeLost>(&finished[0].outcome.ending);
  REQUIRE(lost != nullptr);
  return *lost;
}

}  // namespace

TEST_CASE("a fixed job ends instead of restarting next to a process that survives SIGKILL") {
  RoundSpec spec = test::inelastic_spec(2);
  spec.max_restarts = 3;
  RoundDriver job(spec);
  job.join_all();
  const int node = GENERATE(0, 1);
  fail_round(job, node);
  CHECK(job.state.round == 0);
  for (const int told : {0, 1}) {
    const NodeLost lost = loss_in(job, told);
    CHECK(lost.node_rank == node);
    CHECK_THAT(lost.reason, StartsWith(kReason));
    const std::string rank = std::to_string(aged_failure(1).failure.rank);
    CHECK_THAT(lost.reason, ContainsSubstring("rank " + rank + " failed"));
  }
}

TEST_CASE(
    "a job that ends by a failure reports that failure, not the process that survives SIGKILL") {
  RoundDriver job(test::inelastic_spec(2));
  job.join_all();
  fail_round(job, 1);
  const auto finished = job.sent<Finish>(RoundDriver::peer(0));
  REQUIRE(finished.size() == 1);
  CHECK(std::holds_alternative<WorkersFailed>(finished[0].outcome.ending));
}

TEST_CASE("a spare replaces a node with a process that survives SIGKILL") {
  RoundSpec spec = test::elastic_spec(2, 2);
  spec.max_restarts = 3;
  ElasticJob job(spec);
  for (int node = 0; node < 2; ++node) job.come(node);
  REQUIRE(job.state.phase == RoundPhase::Running);
  SECTION("a spare that is waiting") {
    job.come(2);
    job.live(60s);
    fail_round(job, 1);
  }
  SECTION("a spare that joins later") {
    fail_round(job, 1);
    CHECK(job.state.phase == RoundPhase::Joining);
    CHECK(loss_in(job, 1).node_rank == 1);
    job.come(2);
  }
  REQUIRE(job.state.phase == RoundPhase::Running);
  CHECK(job.world_of(2).has_value());
  CHECK_FALSE(job.world_of(1).has_value());
  job.come_as(200, 1, 99);
  CHECK(job.sent<Refused>(200).size() == 1);
}

TEST_CASE("an elastic job ends if a process on the coordinator's node survives SIGKILL") {
  RoundSpec spec = test::elastic_spec(1, 2);
  spec.max_restarts = 3;
  ElasticJob job(spec);
  for (int node = 0; node < 2; ++node) job.come(node);
  fail_round(job, 0);
  CHECK(loss_in(job, 1).is_coordinator);
}

TEST_CASE("a member with a process that survives SIGKILL does not join again") {
  MemberDriver member = MemberDriver::in(MemberPhase::Stopping);
  member.event(OwnStopped{.round = 0, .unusable = kReason});
  CHECK(member.sent<Stopped>().unusable == kReason);
}

}  // namespace drun::rendezvous
