// The preflight check: worlds of probes before the program's first world.
#include "tests/support/catch.h"
#include "tests/support/elastic_job.h"

namespace drun::rendezvous {
namespace {

using test::aged_failure;
using test::RoundDriver;
using namespace std::chrono_literals;

RoundSpec checked_fixed_spec() {
  RoundSpec spec = test::inelastic_spec(2);
  spec.preflight = true;
  return spec;
}

RoundSpec checked_elastic_spec() {
  RoundSpec spec = test::elastic_spec(2, 3);
  spec.preflight = true;
  return spec;
}

test::ElasticJob checking(const RoundSpec& spec = checked_elastic_spec()) {
  test::ElasticJob job(spec);
  for (int node = 0; node < 3; ++node) job.come(node);
  REQUIRE(job.world_of(2)->is_preflight);
  return job;
}

void all_return(RoundDriver& job, std::initializer_list<int> nodes) {
  for (const int node : nodes) job.receive(RoundDriver::peer(node), AllReturned{job.state.round});
}

}  // namespace

TEST_CASE(
    "when all probes have returned, the program's first world begins without using a restart") {
  RoundDriver job(checked_fixed_spec());
  job.join_all();
  CHECK(job.sent<WorldReady>(RoundDriver::peer(1)).at(0).world.is_preflight);
  all_return(job, {0, 1});
  CHECK(job.sent<Finish>(RoundDriver::peer(0)).empty());
  REQUIRE(job.sent<Stop>(RoundDriver::peer(0)).size() == 1);
  for (const int node : {0, 1}) job.receive(RoundDriver::peer(node), Stopped{0, {}, 0});
  const World world = job.sent<WorldReady>(RoundDriver::peer(1)).at(0).world;
  CHECK_FALSE(world.is_preflight);
  CHECK(world.round == 1);
  CHECK(world.restarts == 0);
  CHECK(job.count<ClearStore>() == 1);
  all_return(job, {0, 1});
  CHECK(job.sent<Finish>(RoundDriver::peer(0)).at(0).outcome.ending == Ending(Succeeded{}));
}

TEST_CASE("a failed probe ends a fixed job before the program starts, even if restarts are left") {
  RoundSpec spec = checked_fixed_spec();
  spec.max_restarts = 3;
  RoundDriver job(spec);
  job.join_all();
  job.receive(RoundDriver::peer(1), Failed{0, aged_failure(1)});
  job.receive(RoundDriver::peer(1), Stopped{0, {aged_failure(1)}, 0});
  job.receive(RoundDriver::peer(0), Stopped{0, {}, 0});
  const Outcome outcome = job.sent<Finish>(RoundDriver::peer(0)).at(0).outcome;
  CHECK(std::get<WorkersFailed>(outcome.ending).failures.front().node_rank == 1);
  CHECK(outcome.restarts == 0);
}

TEST_CASE("a spare node replaces a node that failed the check, and is checked too") {
  test::ElasticJob job = checking();
  job.come(3);
  job.receive(RoundDriver::peer(1), Failed{0, aged_failure(1)});
  job.stopped(0);
  job.stopped(1, {aged_failure(1)});
  job.stopped(2);
  const LeftOut told{1, "host1", 0, "the preflight check found a problem with it"};
  CHECK(job.sent<NodeLeftOut>(RoundDriver::peer(3)).at(0).node == told);
  CHECK(job.sent<Finish>(RoundDriver::peer(1)).size() == 1);
  REQUIRE(job.world_of(3).has_value());
  CHECK(job.world_of(3)->is_preflight);
  CHECK(job.world_of(3)->restarts == 0);
  all_return(job, {0, 2, 3});
  for (const int node : {0, 2, 3}) job.stopped(node);
  CHECK_FALSE(job.world_of(3)->is_preflight);
}

TEST_CASE("a failed check ends the job if the node is the coordinator's or cannot be replaced") {
  const int bad = GENERATE(0, 1);
  RoundSpec spec = checked_elastic_spec();
  spec.elastic->min_nodes = bad == 0 ? 1 : 3;
  test::ElasticJob job = checking(spec);
  job.receive(RoundDriver::peer(bad), Failed{0, aged_failure(bad)});
  for (int node = 0; node < 3; ++node)
    job.stopped(node, node == bad ? std::vector{aged_failure(bad)} : std::vector<AgedFailure>{});
  const Outcome outcome = job.sent<Finish>(RoundDriver::peer(2)).at(0).outcome;
  CHECK(std::get<WorkersFailed>(outcome.ending).failures.front().node_rank == bad);
  CHECK(outcome.left_out.empty());
}

TEST_CASE("after a node is lost during the check the remaining nodes are checked again") {
  test::ElasticJob job = checking();
  job.leave(RoundDriver::peer(2));
  for (const int node : {0, 1}) job.stopped(node);
  REQUIRE(job.world_of(1).has_value());
  CHECK(job.world_of(1)->is_preflight);
  CHECK(job.world_of(1)->node_count == 2);
}

TEST_CASE("a failure of the program after the preflight check uses a restart") {
  RoundSpec spec = checked_fixed_spec();
  spec.max_restarts = 1;
  RoundDriver job(spec);
  job.join_all();
  all_return(job, {0, 1});
  for (const int node : {0, 1}) job.receive(RoundDriver::peer(node), Stopped{0, {}, 0});
  job.receive(RoundDriver::peer(1), Failed{1, aged_failure(1)});
  job.receive(RoundDriver::peer(0), Stopped{1, {}, 0});
  job.receive(RoundDriver::peer(1), Stopped{1, {aged_failure(1)}, 0});
  const World world = job.sent<WorldReady>(RoundDriver::peer(0)).at(0).world;
  CHECK(world.restarts == 1);
  CHECK_FALSE(world.is_preflight);
}

TEST_CASE("a signal during a failed check that would be repeated ends the job") {
  test::ElasticJob job = checking();
  job.receive(RoundDriver::peer(2), Failed{0, aged_failure(2)});
  job.receive(RoundDriver::peer(0), Signaled{15});
  for (const int node : {0, 1}) job.stopped(node);
  job.receive(RoundDriver::peer(2), Stopped{0, {aged_failure(2)}, 0});
  const auto finish = job.sent<Finish>(RoundDriver::peer(1));
  REQUIRE(finish.size() == 1);
  CHECK(std::holds_alternative<Interrupted>(finish[0].outcome.ending));
}

TEST_CASE("a signal after a failed check that ends the job does not hide the failure") {
  RoundDriver job(checked_fixed_spec());
  job.join_all();
  job.receive(RoundDriver::peer(1), Failed{0, aged_failure(1)});
  job.receive(RoundDriver::peer(0), Signaled{15});
  job.receive(RoundDriver::peer(0), Stopped{0, {}, 0});
  job.receive(RoundDriver::peer(1), Stopped{0, {aged_failure(1)}, 0});
  const auto finish = job.sent<Finish>(RoundDriver::peer(1));
  REQUIRE(finish.size() == 1);
  CHECK(std::holds_alternative<WorkersFailed>(finish[0].outcome.ending));
}

}  // namespace drun::rendezvous
