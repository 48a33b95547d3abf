// Plans from the engine's environment and the user's options.
#include "launcher/plan/engine.h"

#include <nlohmann/json.hpp>

#include "launcher/plan/plan.h"
#include "tests/support/catch.h"
#include "tests/support/plans.h"
#include "tests/support/variables.h"

namespace drun {
namespace {

using test::Variables;
using test::with;

const Variables kStep = {{"SLURM_JOB_ID", "7"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_STEP_NUM_NODES", "3"},
                         {"SLURM_STEP_NUM_TASKS", "3"},
                         {"SLURM_NODEID", "2"},
                         {"SLURM_PROCID", "2"},
                         {"SLURM_STEP_NODELIST", "n[1-3]"}};
const Variables kOneMachine = {{"OMPI_COMM_WORLD_RANK", "1"},
                               {"OMPI_COMM_WORLD_SIZE", "2"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                               {"PMIX_NAMESPACE", "5"},
                               {"PMIX_MCA_gds", "hash"}};

HostFacts engine_host(const Variables& variables) {
  HostFacts host;
  host.hostname = "n3";
  host.usable_cpus = 16;
  host.random_id = "0123456789abcdef";
  host.environment.assign(variables.begin(), variables.end());
  host.probe = [](const std::string&) { return FileKind::Executable; };
  host.file_text = [](const std::string&) { return std::optional<std::string>(); };
  return host;
}

// Like the command line, where every option that is set has a source.
Options given(Options options, const std::map<std::string, std::string>& sources = {}) {
  options.program = "train";
  options.sources = sources;
  return options;
}

Plan engine_plan(const Options& options, const Variables& variables, int gpus = 0) {
  HostFacts host = engine_host(variables);
  host.gpus = gpus;
  return test::plan_of(options, host);
}

std::string engine_error(const Options& options, const Variables& variables) {
  return test::plan_error(options, engine_host(variables));
}

std::string origin(const Plan& plan, const std::string& what) {
  for (const Origin& each : plan.origins.values) {
    if (each.what == what) return each.value + " from " + each.from;
  }
  return "";
}

}  // namespace

TEST_CASE("under srun no option is required") {
  const Plan plan = engine_plan(given({}), kStep);
  const JoinSpec& join = plan.agent.join;
  CHECK(join.node_count == 3);
  CHECK(join.node_rank == 2);
  CHECK(join.endpoint.host == "n1");
  CHECK(join.endpoint.port >= 61440);
  CHECK(join.master_addr == "n1");
  CHECK(join.run_id == "slurm-7.0");
  CHECK(join.local_world_size == 1);
  CHECK_FALSE(join.is_coordinator);
  CHECK(plan.origins.engine == "Slurm, step 7.0");
  CHECK(origin(plan, "node rank") == "2 from SLURM_NODEID");
  CHECK(origin(plan, "workers") == "1 from default");
}

TEST_CASE("flags and PET_ variables override the engine individually") {
  const Plan plan = engine_plan(given({.nproc_per_node = WorkerCount(5),
                                       .master_addr = "n1-ib",
                                       .master_port = 77,
                                       .rdzv_id = "mine"},
                                      {{"--nproc-per-node", "PET_NPROC_PER_NODE"},
                                       {"--master-addr", "--master-addr"},
                                       {"--master-port", "--master-port"},
                                       {"--rdzv-id", "job.toml"}}),
                                with(kStep, {{"SLURM_GPUS_ON_NODE", "8"}}));
  CHECK(plan.agent.join.endpoint == Endpoint{"n1-ib", 77});
  CHECK(plan.agent.join.node_rank == 2);
  CHECK(origin(plan, "workers") == "5 from PET_NPROC_PER_NODE");
  CHECK(origin(plan, "master address") == "n1-ib from --master-addr");
  CHECK(origin(plan, "run id") == "mine from job.toml");
  CHECK(origin(plan, "nodes") == "3 from SLURM_STEP_NUM_NODES");
}

TEST_CASE("the engine is not consulted if nodes, rank and address are given") {
  const Options all = given({.nnodes = NodeRange{2, 2}, .node_rank = 1, .master_addr = "other"});
  const Plan plan = engine_plan(all, with(kStep, {{"SLURM_NODEID", ""}}));
  CHECK(plan.agent.join.run_id == "none");
  CHECK_THAT(plan.origins.engine, ContainsSubstring("not asked"));
  CHECK(engine_plan(given({.standalone = true}), kStep).agent.join.node_count == 1);
  CHECK(engine_plan(given({.nnodes = NodeRange{1, 1}}), kStep).agent.join.node_count == 1);
  Options none = given({});
  none.engine = EngineChoice::None;
  CHECK(engine_plan(none, kStep).agent.join.node_count == 1);
  CHECK_THAT(
      engine_plan(given({}), with(kStep, {{"TORCHELASTIC_RUN_ID", "x"}, {"LOCAL_RANK", "0"}}))
          .origins.engine,
      ContainsSubstring("worker of another agent"));
}

TEST_CASE("under the name torchrun the engine fills in only what --nnodes leaves open") {
  Options options = given({});
  options.invoked_as = "torchrun";
  CHECK(engine_plan(options, kStep).agent.join.node_count == 1);
  options.nnodes = NodeRange{3, 3};
  options.rdzv_backend = "c10d";
  options.rdzv_endpoint = "n1:4000";
  options.rdzv_id = "x";
  const Plan plan = engine_plan(options, kStep);
  CHECK(plan.agent.join.node_rank == 2);
  CHECK(plan.agent.join.endpoint == Endpoint{"n1", 4000});
}

TEST_CASE("a missing value is an error that names it, and never results in a one-node job") {
  CHECK_THAT(
      engine_error(given({}), with(kStep, {{"SLURM_NODEID", ""}})),
      ContainsSubstring("Slurm, step 7.0: it started this drun, but does not set SLURM_NODEID"));
  CHECK_THAT(engine_error(given({}), with(kStep, {{"SLURM_STEP_NODELIST", ""}})),
             ContainsSubstring("SLURM_STEP_NODELIST is not set"));
  CHECK_THAT(engine_error(given({}), with(kOneMachine, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}})),
             ContainsSubstring("Open MPI: it does not report where rank 0 is"));
  CHECK_THAT(engine_error(given({}), {{"JOB_COMPLETION_INDEX", "1"}}),
             ContainsSubstring("PET_NNODES"));
  CHECK_THAT(engine_error(given({.nnodes = NodeRange{2, 2}}), {{"JOB_COMPLETION_INDEX", "1"}}),
             ContainsSubstring("node 0's address is missing"));
  CHECK_THAT(engine_error(given({.nnodes = NodeRange{2, 2}}, {{"--nnodes", "PET_NNODES"}}), kStep),
             ContainsSubstring("PET_NNODES asks for 2 nodes, but SLURM_STEP_NUM_NODES says 3"));
}

TEST_CASE("given options replace values that the engine does not provide") {
  CHECK(engine_plan(given({.node_rank = 1}), with(kStep, {{"SLURM_NODEID", ""}}))
            .agent.join.node_rank == 1);
  const Plan pod = engine_plan(given({.nnodes = NodeRange{4, 4}, .master_addr = "train-0.net"}),
                               {{"JOB_COMPLETION_INDEX", "3"}});
  CHECK(pod.agent.join.node_rank == 3);
  CHECK(pod.agent.join.endpoint == Endpoint{"train-0.net", 29500});
}

TEST_CASE("several agents in a one-node allocation still need an address") {
  const Variables batch = {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NUM_NODES", "1"}};
  CHECK(engine_plan(given({}), batch).agent.join.node_count == 1);
  const Options two = given({.nnodes = NodeRange{2, 2}, .node_rank = 1});
  CHECK_THAT(engine_error(two, batch), ContainsSubstring("give --master-addr"));
}

TEST_CASE("a step on one node needs no address and no port") {
  const Plan plan = engine_plan(given({}), {{"SLURM_JOB_ID", "7"},
                                            {"SLURM_STEP_ID", "0"},
                                            {"SLURM_STEP_NUM_NODES", "1"},
                                            {"SLURM_STEP_NUM_TASKS", "1"},
                                            {"SLURM_NODEID", "0"},
                                            {"SLURM_STEP_NODELIST", "n3"},
                                            {"SLURM_CPUS_PER_TASK", "4"}});
  CHECK(plan.agent.join.endpoint == Endpoint{"127.0.0.1", 0});
  CHECK(plan.agent.join.run_id == "slurm-7.0");
  CHECK(plan.agent.join.local_world_size == 4);
}

TEST_CASE("workers default to Slurm's visible GPUs, and cpu means the granted CPUs") {
  const Variables gpus = with(kStep, {{"SLURM_GPUS_ON_NODE", "8"}});
  CHECK(engine_plan(given({}), gpus, 2).agent.join.local_world_size == 2);
  CHECK(engine_plan(given({}), gpus, 0).agent.join.local_world_size == 8);
  const Options cpu = given({.nproc_per_node = WorkerCount(Device::Cpu)});
  CHECK(engine_plan(cpu, kStep).agent.join.local_world_size == 16);
  CHECK(engine_plan(cpu, with(kStep, {{"SLURM_CPUS_ON_NODE", "6"}})).agent.join.local_world_size ==
        6);
}

TEST_CASE("if rank 0 hosts the store, drun uses another port for the rendezvous") {
  Options options = given({});
  options.store = StoreHost::Worker;
  const JoinSpec join = engine_plan(options, kStep).agent.join;
  CHECK(join.endpoint.host == "n1");
  CHECK(join.master_addr == "n1");
  CHECK(join.endpoint.port != join.master_port);
}

TEST_CASE(
    "MASTER_ADDR is used if the engine knows no address, and ignored with a warning otherwise") {
  const Variables apart = with(kOneMachine, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});
  const Plan taken = engine_plan(given({}), with(apart, {{"MASTER_ADDR", "gpu9"}}));
  CHECK(origin(taken, "master address") == "gpu9 from MASTER_ADDR");
  const Plan not_taken = engine_plan(given({}), with(kStep, {{"MASTER_ADDR", "localhost"}}));
  CHECK(not_taken.agent.join.endpoint.host == "n1");
  REQUIRE(not_taken.warnings.size() == 1);
  CHECK_THAT(not_taken.warnings.front(), ContainsSubstring("MASTER_ADDR=localhost is ignored"));
}

TEST_CASE("workers do not get variables that are valid only for the agent") {
  const auto names = [](const Plan& plan) {
    std::string all;
    for (const auto& [name, value] : plan.agent.worker.environment) all += name + " ";
    return all;
  };
  const Plan plan = engine_plan(given({}), kOneMachine);
  CHECK(plan.origins.removed.size() == 4);
  CHECK_THAT(names(plan), !ContainsSubstring("OMPI_COMM_WORLD_RANK"));
  CHECK_THAT(names(plan), ContainsSubstring("PMIX_MCA_gds"));
  Options none = given({});
  none.engine = EngineChoice::None;
  CHECK_THAT(names(engine_plan(none, kOneMachine)), ContainsSubstring("OMPI_COMM_WORLD_RANK"));
  CHECK_THAT(names(engine_plan(given({.standalone = true}), kOneMachine)),
             !ContainsSubstring("OMPI_COMM_WORLD_RANK"));
}

TEST_CASE("the plan shows the engine and the source of each value, as text and as JSON") {
  const Plan plan = engine_plan(given({}), kStep);
  const std::string text = plan_text(plan);
  CHECK_THAT(text, ContainsSubstring("engine       Slurm, step 7.0\n"));
  CHECK_THAT(text, ContainsSubstring("             node rank 2: SLURM_NODEID\n"));
  CHECK_THAT(text, ContainsSubstring("             master address n1: SLURM_STEP_NODELIST\n"));
  CHECK_THAT(text, ContainsSubstring("removed for workers SLURM_PROCID"));
  const auto json = nlohmann::json::parse(plan_json(plan));
  CHECK(json["engine"]["name"] == "Slurm, step 7.0");
  CHECK(json["engine"]["values"][1] ==
        nlohmann::json{{"what", "node rank"}, {"value", "2"}, {"from", "SLURM_NODEID"}});
  CHECK(json["engine"]["removed_variables"].size() == 3);
}

TEST_CASE("for an elastic job the engine provides only the endpoint") {
  Options options = given({.nnodes = NodeRange{2, 4}, .rdzv_backend = "c10d"},
                          {{"--nnodes", "--nnodes"}, {"--rdzv-backend", "--rdzv-backend"}});
  const Plan plan = engine_plan(options, kStep);
  REQUIRE(plan.agent.join.elastic);
  CHECK(plan.agent.join.elastic->min_nodes == 2);
  CHECK(plan.agent.join.node_count == 4);
  CHECK(plan.agent.join.endpoint.host == "n1");
  CHECK(plan.agent.join.run_id == "slurm-7.0");
  CHECK(plan.warnings.empty());
  options.master_port = 29777;
  const Plan own = engine_plan(options, kStep);
  CHECK(own.agent.join.endpoint == Endpoint{"n1", 29777});
  CHECK(own.warnings.empty());
}

TEST_CASE("a Slurm node name that does not resolve is replaced by its address in Slurm") {
  HostFacts host = engine_host(kStep);
  std::vector<std::string> asked;
  host.addresses_of = [](const std::string& name) {
    return name.starts_with("10.") ? std::vector<std::string>{name} : std::vector<std::string>();
  };
  host.slurm_addresses = [&asked](const std::string& name) {
    asked.push_back(name);
    return std::vector<std::string>{"unknown", "10.3.0.1"};
  };
  const Plan plan = test::plan_of(given({}), host);
  CHECK(plan.agent.join.master_addr == "10.3.0.1");
  CHECK(plan.agent.join.endpoint.host == "10.3.0.1");
  CHECK(origin(plan, "master address") ==
        "10.3.0.1 from SLURM_STEP_NODELIST and scontrol show node n1");
  CHECK(asked == std::vector<std::string>{"n1"});

  const Plan given_one = test::plan_of(given({.master_addr = "n9"}), host);
  CHECK(given_one.agent.join.master_addr == "n9");
  host.slurm_addresses = [](const std::string&) { return std::vector<std::string>(); };
  const Plan unknown = test::plan_of(given({}), host);
  CHECK(unknown.agent.join.master_addr == "n1");
  REQUIRE(unknown.warnings.size() == 1);
  CHECK_THAT(unknown.warnings.front(), ContainsSubstring("set --master-addr"));
  host.addresses_of = [](const std::string&) { return std::vector<std::string>{"10.0.0.1"}; };
  CHECK(test::plan_of(given({}), host).warnings.empty());
  CHECK(asked.size() == 1);
}

}  // namespace drun
