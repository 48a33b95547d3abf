// Tests Slurm's variables as Slurm 22.05 sets them, with their pitfalls.
#include "launcher/engines/detect.h"

#include <set>

#include "tests/support/catch.h"
#include "tests/support/engine_surroundings.h"

namespace drun::engines {
namespace {

using test::around;
using test::Variables;
using test::with;

// The second node of srun -N3 that was started on a login node.
const Variables kStep = {
    {"SLURM_JOB_ID", "7"},
    {"SLURM_STEP_ID", "2"},
    {"SLURM_STEPID", "2"},
    {"SLURM_STEP_NUM_NODES", "3"},
    {"SLURM_STEP_NUM_TASKS", "3"},
    {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"},
    {"SLURM_STEP_NODELIST", "node[02-04]"},
    {"SLURM_JOB_NODELIST", "node[01-08]"},
    {"SLURM_NODELIST", "node[01-08]"},
    {"SLURM_JOB_NUM_NODES", "8"},
    {"SLURM_NNODES", "8"},
    {"SLURM_NTASKS", "64"},
    {"SLURM_NODEID", "1"},
    {"SLURM_PROCID", "1"},
    {"SLURM_LOCALID", "0"},
    {"SLURMD_NODENAME", "node03"},
    {"SLURM_LAUNCH_NODE_IPADDR", "10.9.9.9"},
    {"SLURM_SRUN_COMM_HOST", "10.9.9.9"},
};

// A batch script on its first node.
const Variables kBatch = {
    {"SLURM_JOB_ID", "7"},
    {"SLURM_JOB_NUM_NODES", "3"},
    {"SLURM_NNODES", "3"},
    {"SLURM_NODEID", "0"},
    {"SLURM_PROCID", "0"},
    {"SLURM_LOCALID", "0"},
    {"SLURM_JOB_NODELIST", "node[01-03]"},
};

Facts step(const Variables& changes = {}) {
  const auto facts = slurm_step(around(with(kStep, changes)));
  REQUIRE(facts);
  return *facts;
}

}  // namespace

TEST_CASE("a node's identity comes from the step's node list, not from the allocation's") {
  const Facts facts = step();
  CHECK(facts.wrong == "");
  CHECK(facts.missing == "");
  CHECK(facts.engine == "Slurm, step 7.2");
  CHECK(facts.nodes == EngineFact<int>{3, "SLURM_STEP_NUM_NODES"});
  CHECK(facts.node_rank == EngineFact<int>{1, "SLURM_NODEID"});
  CHECK(facts.master_addr == EngineFact<std::string>{"node02", "SLURM_STEP_NODELIST"});
  CHECK(facts.run_id->value == "slurm-7.2");
  CHECK_FALSE(facts.workers);
}

TEST_CASE("a step's node rank is Slurm's node index in any task order") {
  // --distribution=arbitrary with a SLURM_HOSTFILE of node04, node02, node03
  CHECK(step({{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "2"}, {"SLURMD_NODENAME", "node04"}})
            .node_rank->value == 2);
}

TEST_CASE("contradictory step variables are an error") {
  CHECK_THAT(step({{"SLURMD_NODENAME", "node04"}}).wrong,
             ContainsSubstring("SLURM_NODEID=1 is node03"));
  CHECK_THAT(step({{"SLURM_NODEID", "3"}}).wrong, ContainsSubstring("is not under"));
  CHECK_THAT(step({{"SLURM_STEP_NODELIST", "node[02-05]"}}).wrong,
             ContainsSubstring("has 4 hosts, but SLURM_STEP_NUM_NODES=3"));
  CHECK_THAT(step({{"SLURM_STEP_NODELIST", "node[02-"}}).wrong,
             ContainsSubstring("SLURM_STEP_NODELIST=\"node[02-\" no number"));
  CHECK_THAT(step({{"SLURM_NODEID", "one"}}).wrong,
             ContainsSubstring("SLURM_NODEID=\"one\" is not a whole number"));
  CHECK_THAT(step({{"SLURM_STEP_NUM_NODES", "-3"}}).wrong, ContainsSubstring("whole number"));
  CHECK_THAT(step({{"SLURM_STEP_NUM_NODES", "99999999999999999999"}}).wrong,
             ContainsSubstring("whole number"));
  CHECK(step({{"SLURM_STEP_NODELIST", std::string(5000, ']')}}).wrong.size() < 300);
}

TEST_CASE("missing step variables are named") {
  CHECK(step({{"SLURM_NODEID", ""}}).missing == "SLURM_NODEID");
  CHECK(step({{"SLURM_STEP_NUM_NODES", ""}, {"SLURM_STEP_NODELIST", ""}}).missing ==
        "SLURM_STEP_NUM_NODES, SLURM_STEP_NODELIST");
  CHECK(step({{"SLURM_JOB_ID", ""}}).missing == "SLURM_JOB_ID");
  CHECK(step({{"SLURM_STEP_NODELIST", ""}}).no_master != "");
  CHECK_FALSE(step({{"SLURM_STEP_NODELIST", ""}}).master_addr);
}

TEST_CASE("several tasks per node are rejected with the command to use") {
  const Facts facts = step({{"SLURM_STEP_NUM_TASKS", "12"}, {"SLURM_CPUS_ON_NODE", "32"}});
  CHECK_THAT(facts.wrong, ContainsSubstring("12 tasks on 3 nodes"));
  CHECK_THAT(facts.wrong, ContainsSubstring("srun -N3 -n3 --ntasks-per-node=1 -c32 drun "
                                            "--nproc-per-node=4"));
  CHECK_THAT(step({{"SLURM_STEP_NUM_TASKS", ""}}).wrong, ContainsSubstring("64 tasks"));
  CHECK_THAT(step({{"SLURM_STEP_NUM_TASKS", "2"},
                   {"SLURM_STEP_NUM_NODES", "1"},
                   {"SLURM_STEP_NODELIST", "node03"},
                   {"SLURM_NODEID", "0"}})
                 .wrong,
             ContainsSubstring("2 tasks on 1 node,"));
}

TEST_CASE("the worker count is the number of granted GPUs, or else the requested CPUs") {
  CHECK(step({{"SLURM_GPUS_ON_NODE", "8"}, {"SLURM_CPUS_PER_TASK", "96"}}).workers ==
        EngineFact<int>{8, "SLURM_GPUS_ON_NODE"});
  CHECK(step({{"SLURM_STEP_GPUS", "0,2,5"}}).workers == EngineFact<int>{3, "SLURM_STEP_GPUS"});
  CHECK(step({{"SLURM_STEP_GPUS", "0-3,6"}}).workers == EngineFact<int>{5, "SLURM_STEP_GPUS"});
  CHECK(step({{"SLURM_GPUS_ON_NODE", "0-3"}}).workers == EngineFact<int>{4, "SLURM_GPUS_ON_NODE"});
  CHECK(step({{"SLURM_GPUS_ON_NODE", "2,3"}}).workers == EngineFact<int>{2, "SLURM_GPUS_ON_NODE"});
  // SLURM_JOB_GPUS lists the GPUs of the job's first node, not those of this step.
  CHECK(step({{"SLURM_JOB_GPUS", "0-7"}}).workers == step({}).workers);
  CHECK_THAT(step({{"SLURM_STEP_GPUS", "3-1"}}).wrong,
             ContainsSubstring("SLURM_STEP_GPUS=\"3-1\" is no list of GPUs"));
  CHECK_THAT(step({{"SLURM_GPUS_ON_NODE", "-1"}}).wrong, ContainsSubstring("no list of GPUs"));
  CHECK(step({{"SLURM_CPUS_PER_TASK", "4"}, {"SLURM_CPUS_ON_NODE", "64"}}).workers ==
        EngineFact<int>{4, "SLURM_CPUS_PER_TASK"});
  // A step with fewer CPUs inherits the variable from its job.
  CHECK(step({{"SLURM_CPUS_PER_TASK", "4"}, {"SLURM_CPUS_ON_NODE", "1"}}).workers ==
        EngineFact<int>{1, "SLURM_CPUS_ON_NODE"});
  const Facts neither = step({{"SLURM_CPUS_ON_NODE", "64"}});
  CHECK_FALSE(neither.workers);
  CHECK(neither.cpus->value == 64);
}

TEST_CASE("ports that Slurm reserved are used if there are any") {
  const Facts facts = step({{"SLURM_STEP_RESV_PORTS", "17123-17124"}});
  CHECK(facts.master_port == EngineFact<int>{17123, "SLURM_STEP_RESV_PORTS"});
  CHECK(facts.meeting_port == EngineFact<int>{17124, "SLURM_STEP_RESV_PORTS"});
  CHECK(step({{"SLURM_STEP_RESV_PORTS", "17123,17130"}}).meeting_port->value == 17130);
  const Facts one = step({{"SLURM_STEP_RESV_PORTS", "17123"}});
  CHECK(one.master_port->value == 17123);
  CHECK(one.meeting_port->value >= 61440);
  for (const char* bad : {"(null)", "0", "70000-70001", "1-99999999"})
    CHECK_THAT(step({{"SLURM_STEP_RESV_PORTS", bad}}).wrong, ContainsSubstring("no list of ports"));
}

TEST_CASE("jobs and steps with nearby ids get different ports, the same on every node") {
  std::set<int> ports;
  for (int job = 1; job <= 60; ++job) {
    for (int number = 0; number < 60; ++number) {
      const Variables ids = {{"SLURM_JOB_ID", std::to_string(job)},
                             {"SLURM_STEP_ID", std::to_string(number)}};
      const int port = step(ids).master_port->value;
      CHECK(port == step(with(ids, {{"SLURM_NODEID", "0"}, {"SLURMD_NODENAME", "node02"}}))
                        .master_port->value);
      CHECK(port >= 61440);
      CHECK(port <= 65535);
      ports.insert(port);
    }
  }
  CHECK(ports.size() == 3600);
  CHECK(step().master_port->value != step().meeting_port->value);
}

TEST_CASE("a requeued job has a different run id") {
  CHECK(step({{"SLURM_RESTART_COUNT", "0"}}).run_id->value == "slurm-7.2");
  CHECK(step({{"SLURM_RESTART_COUNT", "2"}}).run_id->value == "slurm-7.2-r2");
}

TEST_CASE("batch scripts, interactive shells and prologs are not treated as steps") {
  CHECK_FALSE(slurm_step(around(kBatch)));
  for (const char* special : {"4294967291", "4294967290", "4294967292", "batch"})
    CHECK_FALSE(slurm_step(around(with(kStep, {{"SLURM_STEP_ID", special}}))));
  CHECK_FALSE(slurm_allocation(around(kStep)));
}

TEST_CASE("drun started directly by a batch script supports only one node") {
  const auto three = slurm_allocation(around(kBatch));
  REQUIRE(three);
  CHECK_THAT(three->wrong, ContainsSubstring("has 3 nodes, but srun did not start this drun"));
  CHECK_THAT(three->wrong, ContainsSubstring("srun -N3 -n3 --ntasks-per-node=1 -cCPUS drun ..."));
  const auto one = slurm_allocation(
      around(with(kBatch, {{"SLURM_JOB_NUM_NODES", "1"}, {"SLURM_GPUS_ON_NODE", "4"}})));
  REQUIRE(one);
  CHECK(one->wrong == "");
  CHECK(one->nodes->value == 1);
  CHECK(one->workers->value == 4);
  const auto unknown =
      slurm_allocation(around(with(kBatch, {{"SLURM_JOB_NUM_NODES", ""}, {"SLURM_NNODES", ""}})));
  REQUIRE(unknown);
  CHECK(unknown->missing == "SLURM_NNODES");
}

TEST_CASE("a Slurm step takes precedence over PMI and PMIx, whose variables Slurm also sets") {
  const Variables pmi = {{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}, {"PMI_FD", "11"}};
  CHECK(detect(around(with(kStep, pmi)))->engine == "Slurm, step 7.2");
  const Variables pmix = {{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "slurm.pmix.7.2"}};
  CHECK(detect(around(with(kStep, pmix)))->engine == "Slurm, step 7.2");
}

TEST_CASE("an MPI launcher whose daemons run in a step takes precedence over the step") {
  // mpirun in a batch script on four nodes starts its daemons on the other three as an srun step.
  const Variables ompi = {{"OMPI_COMM_WORLD_RANK", "2"},
                          {"OMPI_COMM_WORLD_SIZE", "4"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
  const auto facts = detect(around(with(kStep, ompi)));
  REQUIRE(facts);
  CHECK(facts->engine == "Open MPI");
  CHECK(facts->node_rank->value == 2);
  CHECK(facts->nodes->value == 4);
  CHECK(facts->master_addr == EngineFact<std::string>{"node01", "SLURM_JOB_NODELIST"});
  const Variables hydra = {
      {"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}};
  CHECK(detect(around(with(kStep, hydra)))->engine == "PMI (Hydra)");
}

TEST_CASE("a node's address and host name are parsed from scontrol output") {
  using Words = std::vector<std::string>;
  CHECK(slurm_node_addresses("NodeName=node01 Arch=x86_64 CoresPerSocket=1 NodeAddr=10.3.0.7 "
                             "NodeHostName=vm-17.cloud Port=0 Version=22.05\n") ==
        Words{"10.3.0.7", "vm-17.cloud"});
  CHECK(slurm_node_addresses("NodeName=a\n   NodeAddr=fd00::7 NodeHostName=a\n") ==
        Words{"fd00::7", "a"});
  for (const char* record : {"", "Node node01 not found", " NodeAddr=", " NodeAddr=(null) Port=1",
                             " NodeAddr=-x", " NodeAddr=a;b", " XNodeAddr=10.0.0.1"})
    CHECK(slurm_node_addresses(record).empty());
}

}  // namespace drun::engines
