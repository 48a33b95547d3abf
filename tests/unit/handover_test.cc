// Tests a coordinator that hands the job over when its own agent receives a signal or is lost.
#include "rendezvous/coordinator/round.h"
#include "tests/support/catch.h"
#include "tests/support/elastic_job.h"

namespace drun::rendezvous {
namespace {

using test::aged_failure;
using test::ElasticJob;
using test::RoundDriver;
using namespace std::chrono_literals;

constexpr Peer kHost = 100;

// A job with an elected coordinator on node 0.
ElasticJob elected_job(int least, int nodes) {
  ElasticJob job(least, 3);
  job.state.spec.term = 4;
  for (int node = 0; node < nodes; ++node) job.come(node);
  if (nodes < 3 && nodes >= least) job.live(31s);
  return job;
}

void signal(ElasticJob& job, Peer peer, bool has_successor) {
  job.state.has_successor = has_successor;
  job.receive(peer, Signaled{15});
}

// Checks that the last event ended the job only for node 0 and dropped the other nodes, which
// continue under another coordinator.
void check_handed_over(const ElasticJob& job, std::optional<int> rank) {
  CHECK(job.count<StepDown>() == 1);
  CHECK(job.count<RoundOver>() == 0);
  REQUIRE(job.sent<Finish>(kHost).size() == 1);
  CHECK(job.sent<Finish>(kHost)[0].outcome.ending == Ending(Interrupted{15, rank, "host0"}));
  CHECK(job.dropped(kHost));
  CHECK(job.dropped(RoundDriver::peer(1)));
  CHECK(job.sent<Finish>(RoundDriver::peer(1)).empty());
  CHECK(job.state.phase == RoundPhase::SteppedDown);
}

}  // namespace

TEST_CASE("a coordinator that receives a signal hands the job over once all nodes have stopped") {
  ElasticJob job = elected_job(2, 3);
  signal(job, kHost, true);
  REQUIRE(job.sent<Stop>(RoundDriver::peer(1)).size() == 1);
  CHECK_THAT(job.sent<Stop>(RoundDriver::peer(1))[0].cause,
             ContainsSubstring("another node is to coordinate"));
  job.stopped(0);
  CHECK(job.state.phase == RoundPhase::Stopping);
  CHECK(job.sent<Finish>(kHost).empty());
  job.stopped(1);
  job.stopped(2);
  check_handed_over(job, 0);
  CHECK(job.dropped(RoundDriver::peer(2)));
}

TEST_CASE(
    "without a successor or with too few nodes left a signal to the coordinator ends the job") {
  const bool has_successor = GENERATE(false, true);
  ElasticJob job = elected_job(has_successor ? 3 : 2, 3);
  signal(job, kHost, has_successor);
  for (int node = 0; node < 3; ++node) job.stopped(node);
  CHECK(job.count<StepDown>() == 0);
  CHECK(job.sent<Finish>(RoundDriver::peer(1)).at(0).outcome.ending ==
        Ending(Interrupted{15, 0, "host0"}));
}

TEST_CASE("the job ends when signals to other nodes leave too few nodes") {
  ElasticJob job = elected_job(2, 3);
  signal(job, kHost, true);
  signal(job, RoundDriver::peer(1), true);
  for (int node = 0; node < 3; ++node) job.stopped(node);
  CHECK(job.count<StepDown>() == 0);
  CHECK(job.sent<Finish>(RoundDriver::peer(2)).at(0).outcome.ending ==
        Ending(Interrupted{15, 1, "host1"}));
}

TEST_CASE("nodes that wait to start keep waiting under the next coordinator") {
  ElasticJob job = elected_job(3, 2);
  REQUIRE(job.state.phase == RoundPhase::Joining);
  signal(job, kHost, true);
  check_handed_over(job, std::nullopt);
}

TEST_CASE("an elected coordinator waits for its own agent to reconnect") {
  ElasticJob job = elected_job(3, 2);
  job.leave(kHost);
  CHECK(job.state.phase == RoundPhase::Joining);
  job.come_as(900, 0, 100);
  job.come(2);
  CHECK(job.world(900)->node_rank == 0);
}

TEST_CASE(
    "an elected coordinator that loses its own agent hands the job over if another one can lead") {
  ElasticJob job = elected_job(2, 3);
  REQUIRE(job.state.phase == RoundPhase::Running);
  const bool has_successor = GENERATE(false, true);
  job.state.has_successor = has_successor;
  if (!has_successor) {
    job.leave(kHost);
    CHECK(job.count<StepDown>() == 0);
    CHECK(job.state.ending);
    return;
  }
  job.leave(kHost);
  CHECK(job.count<StepDown>() == 1);
  CHECK(job.count<RoundOver>() == 0);
  for (int node = 1; node < 3; ++node) {
    CHECK(job.dropped(RoundDriver::peer(node)));
    CHECK(job.sent<Finish>(RoundDriver::peer(node)).empty());
  }
  CHECK(job.state.phase == RoundPhase::SteppedDown);
}

TEST_CASE("agents that claim the lost coordinator's identity look for the next coordinator") {
  ElasticJob job = elected_job(2, 3);
  job.state.has_successor = true;
  for (const Peer peer : {900U, 901U}) {
    Hello claim = job.hello_of(0);
    claim.is_coordinator = false;
    claim.instance = peer;
    job.join(peer, claim);
  }
  job.wait(IdentityContests::kReplyTimeout);
  CHECK(job.count<StepDown>() == 1);
  for (const Peer peer : {900U, 901U}) {
    CHECK(job.dropped(peer));
    CHECK(job.sent<Refused>(peer).empty());
  }
}

TEST_CASE("a newcomer whose report makes the coordinator leave looks for the next coordinator") {
  ElasticJob job = elected_job(1, 3);
  signal(job, kHost, true);
  job.stopped(0);
  job.stopped(1);
  REQUIRE(job.state.phase == RoundPhase::Stopping);
  Hello newcomer = job.hello_of(3);
  const AgentId excluded = job.state.nodes.at(2).id;
  newcomer.past.emplace().records = {{.name = excluded.first, .is_left_out = true}};
  job.join(RoundDriver::peer(3), newcomer);
  CHECK(job.count<StepDown>() == 1);
  CHECK(job.dropped(RoundDriver::peer(3)));
  CHECK(job.sent<Refused>(RoundDriver::peer(3)).empty());
}

TEST_CASE("a coordinator in its restart pause hands the job over at once") {
  ElasticJob job = elected_job(2, 3);
  job.state.spec.max_restarts = 3;
  job.state.spec.restart.pause = 10s;
  job.receive(RoundDriver::peer(1), Failed{0, aged_failure(1)});
  for (int node = 0; node < 3; ++node) job.stopped(node);
  REQUIRE(job.state.phase == RoundPhase::Pausing);
  signal(job, kHost, true);
  check_handed_over(job, 0);
}

TEST_CASE("a failure uses a restart even if the coordinator hands the job over") {
  ElasticJob job = elected_job(2, 3);
  job.state.spec.max_restarts = 3;
  job.receive(RoundDriver::peer(1), Failed{0, aged_failure(1)});
  signal(job, kHost, true);
  for (int node = 0; node < 3; ++node) job.stopped(node);
  check_handed_over(job, 0);
  const auto told = job.sent<Remember>(RoundDriver::peer(2));
  REQUIRE(told.size() == 1);
  CHECK(told[0].restarts == 1);
}

TEST_CASE(
    "a failure without restarts left ends the job even if the coordinator could hand it over") {
  ElasticJob job = elected_job(2, 3);
  job.receive(RoundDriver::peer(1), Failed{0, aged_failure(1)});
  signal(job, kHost, true);
  for (int node = 0; node < 3; ++node) job.stopped(node);
  CHECK(job.count<StepDown>() == 0);
  const Outcome outcome = job.sent<Finish>(RoundDriver::peer(2)).at(0).outcome;
  CHECK(std::holds_alternative<WorkersFailed>(outcome.ending));
}

}  // namespace drun::rendezvous
