#include "rendezvous/job/world.h"

#include "tests/support/catch.h"
#include "tests/support/variables.h"

namespace drun {
namespace {

using test::lookup_in;
using test::Variables;

Variables environment_of(const World& world, int local_rank) {
  Variables variables;
  for (const auto& [name, value] : to_environment(world, local_rank)) variables[name] = value;
  return variables;
}

World three_node_world() {
  return World{.run_id = "job-7",
               .round = 3,
               .restarts = 2,
               .max_restarts = 5,
               .node_rank = 1,
               .node_count = 3,
               .base_rank = 4,
               .local_world_size = 2,
               .world_size = 9,
               .role = "trainer",
               .role_base_rank = 3,
               .role_world_size = 8,
               .master_addr = "10.0.0.1",
               .master_port = 29500,
               .use_agent_store = true};
}

}  // namespace

TEST_CASE("a worker reads the world that its agent wrote") {
  const World world = three_node_world();
  const int local_rank = GENERATE(0, 1);
  const auto variables = environment_of(world, local_rank);
  const Result<WorkerIdentity> self = from_environment(lookup_in(variables));
  REQUIRE(self.has_value());
  CHECK(self->rank == 4 + local_rank);
  CHECK(self->local_rank == local_rank);
  CHECK(self->world == world);
}

TEST_CASE("the environment has torchrun's names and formats") {
  const auto variables = environment_of(three_node_world(), 1);
  CHECK(variables.at("RANK") == "5");
  CHECK(variables.at("LOCAL_RANK") == "1");
  CHECK(variables.at("ROLE_RANK") == "4");
  CHECK(variables.at("GROUP_RANK") == "1");
  CHECK(variables.at("TORCHELASTIC_USE_AGENT_STORE") == "True");
  CHECK(variables.at("TORCHELASTIC_RESTART_COUNT") == "2");
  CHECK(variables.at("DRUN_ROUND") == "3");
  CHECK(variables.size() == 16);
}

TEST_CASE("an error about a missing or invalid variable names it and its value") {
  auto variables = environment_of(three_node_world(), 0);
  const auto [name, value] = GENERATE(table<std::string, std::string>({{"RANK", "9"},
                                                                       {"RANK", "-1"},
                                                                       {"WORLD_SIZE", "0"},
                                                                       {"WORLD_SIZE", "nine"},
                                                                       {"LOCAL_RANK", "1x"},
                                                                       {"MASTER_PORT", "65536"},
                                                                       {"MASTER_PORT", "0"}}));
  variables[name] = value;
  const Result<WorkerIdentity> self = from_environment(lookup_in(variables));
  REQUIRE_FALSE(self.has_value());
  CHECK(self.error().code == ErrorCode::Usage);
  CHECK_THAT(self.error().message,
             ContainsSubstring(name) && ContainsSubstring("\"" + value + "\""));

  variables.erase(name);
  if (name != "LOCAL_RANK") CHECK_FALSE(from_environment(lookup_in(variables)).has_value());
}

}  // namespace drun
