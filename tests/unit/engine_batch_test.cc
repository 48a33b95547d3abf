// Tests the detection of PBS, LSF and Kubernetes, as their documentation describes them.
#include "launcher/engines/detect.h"
#include "launcher/engines/host_list.h"
#include "tests/support/catch.h"
#include "tests/support/engine_surroundings.h"

namespace drun::engines {
namespace {

using test::around;
using test::facts_of;
using test::Variables;
using test::with;

// A process of pbsdsh on the second host of a job with select=3:mpiprocs=2.
const Variables kPbs = {{"PBS_JOBID", "12.server"},
                        {"PBS_NODEFILE", "/aux/12"},
                        {"PBS_NODENUM", "1"},
                        {"PBS_TASKNUM", "2"},
                        {"PBS_ENVIRONMENT", "PBS_BATCH"}};
const Variables kNodeFile = {{"/aux/12", "a.x\na.x\nb.x\nb.x\nb.x\nc.x\n"}};

const Variables kLsf = {
    {"LSB_JOBID", "88"}, {"LSB_MCPU_HOSTS", "hostA 4 hostB 2"}, {"LSF_PM_TASKID", "2"}};

const Variables kHosts = {
    {"/etc/hosts",
     "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1 localhost ip6-localhost\n"
     "10.1.2.3\ttrain-2.net.default.svc.cluster.local\ttrain-2\n"}};

}  // namespace

TEST_CASE("PBS: hosts and workers come from the node file, and the node number is the node rank") {
  const Facts facts = facts_of(kPbs, "b", kNodeFile);
  CHECK(facts.wrong == "");
  CHECK(facts.missing == "");
  CHECK(facts.engine == "PBS, job 12.server");
  CHECK(facts.nodes == EngineFact<int>{3, "PBS_NODEFILE"});
  CHECK(facts.node_rank == EngineFact<int>{1, "PBS_NODENUM"});
  CHECK(facts.workers == EngineFact<int>{3, "PBS_NODEFILE"});
  CHECK(facts.master_addr == EngineFact<std::string>{"a.x", "PBS_NODEFILE"});
  CHECK(facts.run_id->value == "pbs-12.server");
  CHECK(facts.master_port->value >= 61440);
}

TEST_CASE("PBS: missing and invalid variables are reported") {
  CHECK_THAT(facts_of(kPbs).wrong, ContainsSubstring("PBS_NODEFILE=\"/aux/12\" cannot be read"));
  CHECK_THAT(facts_of(kPbs, "b", {{"/aux/12", "\n \n"}}).wrong,
             ContainsSubstring("names no hosts"));
  CHECK(facts_of(with(kPbs, {{"PBS_NODEFILE", ""}})).missing == "PBS_NODEFILE");
  CHECK(facts_of(with(kPbs, {{"PBS_NODENUM", ""}}), "b", kNodeFile).missing == "PBS_NODENUM");
  CHECK_THAT(facts_of(with(kPbs, {{"PBS_NODENUM", "3"}}), "b", kNodeFile).wrong,
             ContainsSubstring("makes this node 3, but PBS_NODEFILE has 3 hosts"));
  const Variables script = with(kPbs, {{"PBS_NODENUM", "0"}, {"PBS_TASKNUM", "1"}});
  CHECK_THAT(facts_of(script, "a", kNodeFile).wrong, ContainsSubstring("in its script"));
  const Facts one = facts_of(script, "a", {{"/aux/12", "a\na\n"}});
  CHECK(one.wrong == "");
  CHECK(one.nodes->value == 1);
  CHECK(one.workers->value == 2);
}

TEST_CASE(
    "LSF: hosts come from a file or variables, and the rank is blaunch's task number minus one") {
  const Facts pairs = facts_of(kLsf);
  CHECK(pairs.wrong == "");
  CHECK(pairs.engine == "LSF, job 88");
  CHECK(pairs.nodes == EngineFact<int>{2, "LSB_MCPU_HOSTS"});
  CHECK(pairs.node_rank == EngineFact<int>{1, "LSF_PM_TASKID"});
  CHECK(pairs.workers == EngineFact<int>{2, "LSB_MCPU_HOSTS"});
  CHECK(pairs.master_addr->value == "hostA");
  const Facts words = facts_of(with(kLsf, {{"LSB_MCPU_HOSTS", ""}, {"LSB_HOSTS", "x x y"}}));
  CHECK(words.nodes == EngineFact<int>{2, "LSB_HOSTS"});
  const Facts file =
      facts_of(with(kLsf, {{"LSB_DJOB_HOSTFILE", "/h"}}), "p", {{"/h", "p\np\nq\nq\nq\n"}});
  CHECK(file.nodes == EngineFact<int>{2, "LSB_DJOB_HOSTFILE"});
  CHECK(file.workers->value == 3);
  CHECK(file.run_id->value == "lsf-88");
}

TEST_CASE("LSF: the elements of a job array have different run ids and ports") {
  const Facts first = facts_of(with(kLsf, {{"LSB_JOBINDEX", "1"}}));
  const Facts second = facts_of(with(kLsf, {{"LSB_JOBINDEX", "2"}}));
  CHECK(first.run_id == EngineFact<std::string>{"lsf-88[1]", "LSB_JOBID and LSB_JOBINDEX"});
  CHECK(second.run_id->value == "lsf-88[2]");
  CHECK(first.master_port->value != second.master_port->value);
  CHECK(facts_of(with(kLsf, {{"LSB_JOBINDEX", "0"}})).run_id->value == "lsf-88");
}

TEST_CASE("LSF: missing and invalid variables are reported") {
  CHECK_THAT(facts_of({{"LSB_JOBID", "88"}}).missing, ContainsSubstring("LSB_DJOB_HOSTFILE"));
  CHECK_THAT(facts_of(with(kLsf, {{"LSF_PM_TASKID", ""}})).wrong,
             ContainsSubstring("LSF_PM_TASKID"));
  CHECK_THAT(facts_of(with(kLsf, {{"LSF_PM_TASKID", "0"}})).wrong, ContainsSubstring("from 1"));
  CHECK_THAT(facts_of(with(kLsf, {{"LSF_PM_TASKID", "3"}})).wrong, ContainsSubstring("2 hosts"));
  for (const char* bad : {"hostA", "hostA x", "hostA 0", "hostA 99999999999"}) {
    CHECK_THAT(facts_of(with(kLsf, {{"LSB_MCPU_HOSTS", bad}})).wrong,
               ContainsSubstring("is not HOST SLOTS"));
  }
  CHECK_THAT(facts_of(with(kLsf, {{"LSB_DJOB_HOSTFILE", "/none"}})).wrong,
             ContainsSubstring("cannot be read"));
}

TEST_CASE(
    "Kubernetes: the completion index is the rank, and node 0 has this pod's name with index 0") {
  const Facts facts = facts_of({{"JOB_COMPLETION_INDEX", "2"}}, "train-2", kHosts);
  CHECK(facts.wrong == "");
  CHECK(facts.node_rank == EngineFact<int>{2, "JOB_COMPLETION_INDEX"});
  CHECK(facts.master_addr->value == "train-0.net.default.svc.cluster.local");
  CHECK(facts.run_id->value == "train");
  CHECK_FALSE(facts.nodes);
  CHECK_THAT(facts.missing, ContainsSubstring("PET_NNODES"));
}

TEST_CASE("Kubernetes: without a host name for the other pods, node 0's address must be given") {
  const Variables index = {{"JOB_COMPLETION_INDEX", "2"}};
  CHECK_THAT(facts_of(index, "train-2").no_master, ContainsSubstring("headless service"));
  CHECK_THAT(
      facts_of(index, "train-2", {{"/etc/hosts", "10.1.2.3 train-2 # train-2.x\n"}}).no_master,
      ContainsSubstring("headless service"));
  CHECK_THAT(facts_of(index, "custom", kHosts).no_master, ContainsSubstring("does not end in -2"));
  CHECK_THAT(facts_of({{"JOB_COMPLETION_INDEX", "x"}}).wrong, ContainsSubstring("whole number"));
}

TEST_CASE(
    "variables with a process's rank are foreign to workers, those of the node or job are not") {
  for (const char* name :
       {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_STEP_ID", "OMPI_COMM_WORLD_RANK",
        "OMPI_MCA_orte_hnp_uri", "OMPI_MCA_ess", "OMPI_MCA_ess_base_vpid", "PMIX_RANK",
        "PMIX_SERVER_URI41", "PMI_RANK", "PMI_FD", "MPI_LOCALRANKID", "MV2_COMM_WORLD_RANK",
        "PALS_RANKID", "FLUX_TASK_RANK", "LSF_PM_TASKID"}) {
    CHECK(is_foreign(name));
  }
  for (const char* name :
       {"SLURM_JOB_ID", "SLURM_NODEID", "SLURM_JOB_NODELIST", "SLURM_GPUS_ON_NODE", "OMPI_MCA_btl",
        "OMP_NUM_THREADS", "PMIX_MCA_gds", "JOB_COMPLETION_INDEX", "PBS_NODEFILE", "LSB_JOBID",
        "PATH", "CUDA_VISIBLE_DEVICES", "PET_NNODES", ""}) {
    CHECK_FALSE(is_foreign(name));
  }
}

}  // namespace drun::engines
