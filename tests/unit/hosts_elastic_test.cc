// Tests --nnodes=MIN:MAX with --hosts: which hosts may coordinate the job, and the plans of the
// nodes.
#include "launcher/hosts/host_plan.h"

#include "launcher/plan/plan.h"
#include "tests/support/catch.h"
#include "tests/support/plans.h"

namespace drun::hosts {
namespace {

using test::Words;

HostFacts host_named(const std::string& name) {
  HostFacts host;
  host.hostname = name;
  host.random_id = "id";
  host.usable_cpus = 1;
  host.working_directory = "/home/me";
  host.probe = [](const std::string&) { return FileKind::Executable; };
  host.addresses_of = [name](const std::string& asked) {
    return asked == name ? Words{"127.0.0.1"} : Words{"10.0.0.9"};
  };
  return host;
}

Words with_program(Words words) {
  words.emplace_back("./train");
  return words;
}

HostPlan elastic_plan(const Words& words) {
  return test::host_plan_of(with_program(words), host_named("desk"));
}

std::string elastic_error(const Words& words) {
  return test::host_plan_error(with_program(words), host_named("desk"));
}

JoinSpec agents_join(const HostPlan& plan, std::size_t rank) {
  return test::node_plan_of(plan, rank, host_named(plan.nodes[rank].name)).agent.join;
}

}  // namespace

TEST_CASE("with three or more hosts each of the first three has a seat") {
  const HostPlan plan = elastic_plan({"--hosts=n[1-5]:2", "--nnodes=2:4"});
  CHECK(plan.seats == std::vector<std::size_t>{0, 1, 2});
  CHECK_THAT(host_plan_text(plan),
             ContainsSubstring("nodes        at least 2, at most 4\n") &&
                 ContainsSubstring(
                     "meet         n1, n2, n3, a free port of each; one of them may be lost\n"));
  for (std::size_t rank = 0; rank < 5; ++rank) {
    INFO("rank " << rank);
    const JoinSpec join = agents_join(plan, rank);
    REQUIRE(join.elastic);
    CHECK(join.elastic->min_nodes == 2);
    CHECK(join.node_count == 4);
    CHECK(join.local_world_size == 2);
    CHECK(join.elastic->last_call_timeout == std::chrono::seconds(5));
    CHECK(to_string(join.seats) == "n1:0,n2:0,n3:0");  // the ports are in the launcher's Go
    CHECK(join.own_seats ==
          (rank < 3 ? std::vector<std::size_t>{rank} : std::vector<std::size_t>{}));
  }
}

TEST_CASE(
    "only the first host coordinates if there are two hosts, a given address or a worker's store") {
  for (const Words& words : {Words{"--hosts=n1,n2", "--nnodes=1:2"},
                             Words{"--hosts=n1,n2,n3", "--nnodes=1:3", "--master-addr=n1.ib",
                                   "--master-port=4000", "--rdzv-conf=last_call_timeout=9"},
                             Words{"--hosts=n1,n2,n3", "--nnodes=1:3", "--store=worker"}}) {
    const HostPlan plan = elastic_plan(words);
    CHECK(plan.seats == std::vector<std::size_t>{0});
    const JoinSpec join = agents_join(plan, 0);
    CHECK(join.is_coordinator);
    CHECK_FALSE(agents_join(plan, 1).is_coordinator);
    CHECK(join.seats.empty());
  }
  const JoinSpec join =
      agents_join(elastic_plan({"--hosts=n1,n2,n3", "--nnodes=1:3", "--master-addr=n1.ib",
                                "--master-port=4000", "--rdzv-conf=last_call_timeout=9"}),
                  1);
  CHECK(to_string(join.endpoint) == "n1.ib:4000");
  CHECK(join.elastic->last_call_timeout == std::chrono::seconds(9));
}

TEST_CASE("more nodes than hosts is an error that gives the number of hosts") {
  CHECK_THAT(elastic_error({"--hosts=a,b,c", "--nnodes=2:4"}),
             ContainsSubstring("--nnodes=2:4") && ContainsSubstring("there are 3 hosts") &&
                 ContainsSubstring("write 2:3"));
  CHECK_THAT(elastic_error({"--hosts=a,b,c", "--nnodes=2"}),
             ContainsSubstring("remove the option"));
  CHECK_THAT(elastic_error({"--hosts=a,b,c", "--exclude-after=2"}),
             ContainsSubstring("--nnodes=MIN:MAX"));
}

TEST_CASE(
    "hosts of an elastic job may be excluded, and a job with a fixed node count has no seats") {
  const HostPlan plan = elastic_plan({"--hosts=a,b,c", "--nnodes=2:3", "--exclude-after=2"});
  CHECK(agents_join(plan, 2).elastic->exclude_after == 2);
  CHECK(elastic_plan({"--hosts=a,b,c", "--nnodes=3"}).seats.empty());
}

}  // namespace drun::hosts
