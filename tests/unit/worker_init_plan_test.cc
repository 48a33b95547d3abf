#include "worker_lib/start/init_plan.h"

#include "tests/support/catch.h"
#include "tests/support/variables.h"

namespace drun::worker {
namespace {

using test::Variables;

Result<InitPlan> plan(const InitOptions& options, const Variables& variables) {
  return plan_init(options, test::lookup_in(variables));
}

Variables agents_worker() {
  return {{"RANK", "5"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "4"},
          {"MASTER_ADDR", "10.0.0.1"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_RESTART_COUNT", "2"},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
}

std::string init_error(const InitOptions& options, const Variables& variables) {
  const Result<InitPlan> result = plan(options, variables);
  return result ? "no error" : result.error().message;
}

}  // namespace

TEST_CASE("with env:// the identity and the store come from the agent") {
  const Result<InitPlan> result = plan({}, agents_worker());
  REQUIRE(result);
  CHECK(result->self.rank == 5);
  CHECK(result->self.local_rank == 1);
  CHECK(result->self.world.world_size == 8);
  CHECK(result->self.world.round == 2);
  CHECK_FALSE(result->hosts_store);
}

TEST_CASE("rank 0 of several hosts the store if there is no agent's store") {
  Variables variables = agents_worker();
  variables["TORCHELASTIC_USE_AGENT_STORE"] = GENERATE("False", "");
  CHECK_FALSE(plan({}, variables)->hosts_store);
  variables["RANK"] = "0";
  CHECK(plan({}, variables)->hosts_store);
  variables["WORLD_SIZE"] = "1";
  CHECK_FALSE(plan({}, variables)->hosts_store);
}

TEST_CASE("tcp:// takes address, rank and size from the URL or the options") {
  InitOptions options;
  options.init_method = "tcp://[::1]:1234?rank=0&world_size=3";
  const Result<InitPlan> whole = plan(options, {});
  REQUIRE(whole);
  CHECK(whole->self.world.master_addr == "::1");
  CHECK(whole->self.world.master_port == 1234);
  CHECK(whole->self.world.world_size == 3);
  CHECK(whole->hosts_store);
  options.init_method = "tcp://node-1:1234";
  options.rank = 2;
  options.world_size = 4;
  const Result<InitPlan> split = plan(options, agents_worker());
  REQUIRE(split);
  CHECK(split->self.rank == 2);
  CHECK(split->self.world.master_addr == "node-1");
}

TEST_CASE("tcp:// and file:// without a rank take it from the environment") {
  InitOptions options;
  options.init_method = GENERATE("tcp://node-1:1234", "file:///tmp/job");
  const Result<InitPlan> result = plan(options, agents_worker());
  REQUIRE(result);
  CHECK(result->self.rank == 5);
  CHECK(result->self.local_rank == 1);
  CHECK(result->self.world.local_world_size == 4);
  const Variables mpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                         {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  const Result<InitPlan> under_mpi = plan(options, mpi);
  REQUIRE(under_mpi);
  CHECK(under_mpi->self.rank == 2);
  CHECK_THAT(init_error(options, {}), ContainsSubstring("needs ?rank=R&world_size=N"));
}

TEST_CASE("the local rank in the environment is used only if the rank and size match") {
  InitOptions options;
  options.init_method = "tcp://node-1:1234";
  options.rank = 5;
  options.world_size = 8;
  CHECK(plan(options, agents_worker())->self.local_rank == 1);
  options.world_size = 6;
  const Result<InitPlan> other = plan(options, agents_worker());
  REQUIRE(other);
  CHECK(other->self.local_rank == 5);
  CHECK(other->self.world.local_world_size == 6);
}

TEST_CASE("file:// is a store without a host, and each restart has its own file") {
  InitOptions options;
  options.init_method = "file:///tmp/job?rank=0&world_size=2";
  const Result<InitPlan> first = plan(options, {});
  REQUIRE(first);
  CHECK(first->file_path == "/tmp/job");
  CHECK_FALSE(first->hosts_store);
  CHECK(first->self.world.world_size == 2);
  CHECK(plan(options, {{"TORCHELASTIC_RESTART_COUNT", "3"}})->file_path == "/tmp/job.3");
  options.init_method = "file://localhost/tmp/job?rank=0&world_size=2";
  CHECK(plan(options, {})->file_path == "/tmp/job");
}

TEST_CASE("under an agent rank 0 hosts the store at a different tcp:// address") {
  Variables variables = agents_worker();
  variables["RANK"] = "0";
  InitOptions options;
  options.init_method = "tcp://10.0.0.1:29500?rank=0&world_size=8";
  CHECK_FALSE(plan(options, variables)->hosts_store);
  options.init_method = "tcp://10.0.0.1:29501?rank=0&world_size=8";
  CHECK(plan(options, variables)->hosts_store);
}

TEST_CASE("the message for an invalid setting names its value and the remedy") {
  Variables variables = agents_worker();
  variables["RANK"] = "8";
  CHECK_THAT(init_error({}, variables), ContainsSubstring("RANK=\"8\""));
  variables["RANK"] = "five";
  CHECK_THAT(init_error({}, variables), ContainsSubstring("RANK=\"five\""));
  variables.erase("MASTER_ADDR");
  variables["RANK"] = "5";
  CHECK_THAT(init_error({}, variables), ContainsSubstring("MASTER_ADDR is not set"));
  CHECK_THAT(init_error({}, {}), ContainsSubstring("start this program under drun"));

  InitOptions options;
  const auto error_with = [&](const std::string& method) {
    options.init_method = method;
    return init_error(options, {});
  };
  CHECK_THAT(error_with("udp://x:1"), ContainsSubstring("none of env://, tcp://host:port and"));
  CHECK_THAT(error_with("env://x"), ContainsSubstring("none of env://, tcp://host:port and"));
  CHECK_THAT(error_with("file://tmp/x?rank=0&world_size=2"), ContainsSubstring("the whole path"));
  CHECK_THAT(error_with("file:///tmp/?rank=0&world_size=2"), ContainsSubstring("the whole path"));
  CHECK_THAT(error_with("tcp://host?rank=0&world_size=2"), ContainsSubstring("a host and a port"));
  CHECK_THAT(error_with("tcp://host:1?rank=0&size=2"), ContainsSubstring("\"size=2\" is neither"));
  CHECK_THAT(error_with("tcp://host:1?rank"), ContainsSubstring("\"rank\" is neither"));
  CHECK_THAT(error_with("tcp://host:1?rank=0"), ContainsSubstring("given only rank"));
  CHECK_THAT(error_with("tcp://host:1?rank=2&world_size=2"), ContainsSubstring("RANK=\"2\""));
  CHECK_THAT(error_with("tcp://:1?rank=0&world_size=2"), ContainsSubstring("the host is empty"));
  InitOptions hasty;
  hasty.timeout = std::chrono::milliseconds(0);
  CHECK_THAT(init_error(hasty, agents_worker()), ContainsSubstring("leaves no time"));
}

}  // namespace drun::worker
