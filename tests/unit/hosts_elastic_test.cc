// --nnodes=MIN:MAX with --hosts: who may coordinate the job, and what the agents are told.
#include "launcher/hosts/elastic_plan.h"

#include <algorithm>

#include "launcher/hosts/host_plan_text.h"
#include "launcher/plan.h"
#include "tests/support/catch.h"

namespace drun::hosts {
namespace {

using Words = std::vector<std::string>;

Options options_of(Words words) {
  words.insert(words.begin(), "drun");
  const Result<Command> command =
      parse_command_line(words, [](std::string_view) { return std::optional<std::string>(); });
  INFO((command ? "" : command.error().message));
  REQUIRE(command);
  return std::get<Options>(*command);
}

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

Result<HostPlan> planned(Words words) {
  words.emplace_back("./train");
  return make_host_plan(options_of(words), host_named("desk"), "/opt/drun");
}

HostPlan plan_of(const Words& words) {
  const Result<HostPlan> plan = planned(words);
  INFO((plan ? "" : plan.error().message));
  REQUIRE(plan);
  return *plan;
}

std::string error_of(const Words& words) {
  const Result<HostPlan> plan = planned(words);
  REQUIRE_FALSE(plan);
  return plan.error().message;
}

// What the agent of `rank` makes of it.
JoinSpec join_of(const HostPlan& plan, std::size_t rank) {
  Options options =
      options_of(Words(plan.nodes[rank].arguments.begin() + 1, plan.nodes[rank].arguments.end()));
  options.is_checked_first = true;
  const Result<Plan> made = make_plan(options, host_named(plan.nodes[rank].name));
  INFO((made ? "" : made.error().message));
  REQUIRE(made);
  return made->agent.join;
}

}  // namespace

TEST_CASE("of three hosts and more the first three have a seat each") {
  const HostPlan plan = plan_of({"--hosts=n[1-5]:2", "--nnodes=2:4"});
  CHECK(plan.seats == std::vector<std::size_t>{0, 1, 2});
  CHECK_THAT(
      host_plan_text(plan),
      ContainsSubstring("nodes        at least 2, at most 4\n") &&
          ContainsSubstring("meet         n1, n2, n3, port 29500, of which one may be lost\n"));
  for (std::size_t rank = 0; rank < 5; ++rank) {
    INFO("rank " << rank);
    const JoinSpec join = join_of(plan, rank);
    REQUIRE(join.elastic);
    CHECK(join.elastic->min_nodes == 2);
    CHECK(join.node_count == 4);
    CHECK(join.local_world_size == 2);
    CHECK(join.elastic->last_call_timeout == std::chrono::seconds(5));
    CHECK(to_string(join.seats) == "n1:29500,n2:29500,n3:29500");
    CHECK(join.own_seats ==
          (rank < 3 ? std::vector<std::size_t>{rank} : std::vector<std::size_t>{}));
  }
}

TEST_CASE("two hosts meet on the first and so do more under a name of the user's") {
  for (const Words& words : {Words{"--hosts=n1,n2", "--nnodes=1:2"},
                             Words{"--hosts=n1,n2,n3", "--nnodes=1:3", "--master-addr=n1.ib",
                                   "--master-port=4000", "--rdzv-conf=last_call_timeout=9"},
                             Words{"--hosts=n1,n2,n3", "--nnodes=1:3", "--store=worker"}}) {
    const HostPlan plan = plan_of(words);
    CHECK(plan.seats == std::vector<std::size_t>{0});
    const JoinSpec join = join_of(plan, 0);
    CHECK(join.is_coordinator);
    CHECK_FALSE(join_of(plan, 1).is_coordinator);
    CHECK(join.seats.empty());
  }
  const JoinSpec join = join_of(plan_of({"--hosts=n1,n2,n3", "--nnodes=1:3", "--master-addr=n1.ib",
                                         "--master-port=4000", "--rdzv-conf=last_call_timeout=9"}),
                                1);
  CHECK(to_string(join.endpoint) == "n1.ib:4000");
  CHECK(join.elastic->last_call_timeout == std::chrono::seconds(9));
}

TEST_CASE("more nodes than hosts is an error that says how many there are") {
  CHECK_THAT(error_of({"--hosts=a,b,c", "--nnodes=2:4"}),
             ContainsSubstring("--nnodes=2:4") && ContainsSubstring("there are 3 hosts") &&
                 ContainsSubstring("write 2:3"));
  CHECK_THAT(error_of({"--hosts=a,b,c", "--nnodes=2"}), ContainsSubstring("leave it out"));
  CHECK_THAT(error_of({"--hosts=a,b,c", "--exclude-after=2"}),
             ContainsSubstring("--nnodes=MIN:MAX"));
}

TEST_CASE("hosts of an elastic job may be excluded and a fixed number has no seats") {
  const HostPlan plan = plan_of({"--hosts=a,b,c", "--nnodes=2:3", "--exclude-after=2"});
  CHECK(join_of(plan, 2).elastic->exclude_after == 2);
  CHECK(plan_of({"--hosts=a,b,c", "--nnodes=3"}).seats.empty());
}

}  // namespace drun::hosts
