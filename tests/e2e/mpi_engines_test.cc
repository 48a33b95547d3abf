// drun's agents started by real MPI launchers: three nodes on this machine.
#include <nlohmann/json.hpp>

#include "tests/support/catch.h"
#include "tests/support/job.h"

namespace drun::testing {
namespace {

const Words kOpenMpi = {"mpirun", "--allow-run-as-root", "--oversubscribe", "-np"};
const Words kHydra = {"mpiexec.hydra", "-n"};

// With one file of output for each rank's agent and worker, as all write at once.
const std::string kWho =
    "echo \"$RANK/$WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $TORCHELASTIC_RUN_ID\" "
    "\"$OMPI_COMM_WORLD_RANK$OMPI_MCA_ess$PMIX_RANK$PMI_RANK$PMI_FD$MPI_LOCALRANKID.\" "
    ">\"$DIR/$RANK\"";

struct Agents {
  TemporaryDirectory directory{};
  Launch launch(const Words& argv) const {
    Launch launch = job({}, {});
    launch.argv = argv;
    launch.environment["DIR"] = directory.path();
    return launch;
  }
  Ended run(const Words& argv) const { return testing::run(launch(argv), 60s); }
  std::string rank(int number) const { return read_file(directory.file(std::to_string(number))); }
};

bool works(const Words& mpirun) {
  return run(Agents().launch(mpirun + Words{"1", "true"}), 60s).code == 0;
}

void check_three_agents(const Words& mpirun, const std::string& run_id) {
  const Agents agents;
  const Ended ended = agents.run(mpirun + Words{"3", drun_program(), "sh", "-c", kWho});
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  const std::string first = agents.rank(0);
  CHECK_THAT(first, ContainsSubstring("0/3 127.0.0.1:"));
  CHECK_THAT(first, ContainsSubstring(run_id));
  CHECK_THAT(first, ContainsSubstring(" .\n"));  // nothing of the launcher's reached the worker
  CHECK(agents.rank(1) == "1" + first.substr(1));
  CHECK(agents.rank(2) == "2" + first.substr(1));
  CHECK_THAT(ended.err, ContainsSubstring("3 drun agents on this machine"));
}

}  // namespace

TEST_CASE("under Open MPI's mpirun, drun and the program are the whole command") {
  if (!works(kOpenMpi)) {
    WARN("skipped: no mpirun of Open MPI (openmpi-bin)");
    return;
  }
  check_three_agents(kOpenMpi, " mpi-");

  const Agents agents;
  const Ended explained =
      agents.run(kOpenMpi + Words{"2", drun_program(), "--explain", "--nproc-per-node=2", "true"});
  CHECK(explained.code == 0);
  CHECK_THAT(explained.err, ContainsSubstring("engine       Open MPI\n"));
  CHECK_THAT(explained.err, ContainsSubstring("node rank 1: OMPI_COMM_WORLD_RANK\n"));
  CHECK_THAT(explained.err, ContainsSubstring("workers 2: --nproc-per-node\n"));

  const Ended failed = agents.run(
      kOpenMpi + Words{"2", drun_program(), "sh", "-c", "[ $RANK = 0 ] || exit 41; sleep 600"});
  CHECK(failed.code == 41);
}

TEST_CASE("mpirun over machines that drun cannot tell apart is an error, never a localhost") {
  if (!works(kOpenMpi)) {
    WARN("skipped: no mpirun of Open MPI (openmpi-bin)");
    return;
  }
  const Agents agents;
  // As the variables are with each rank on a machine of its own.
  const Words apart = {"env", "-u", "OMPI_MCA_orte_hnp_uri", "OMPI_COMM_WORLD_LOCAL_SIZE=1"};
  const Ended ended = agents.run(kOpenMpi + Words{"3"} + apart + Words{drun_program(), "true"});
  CHECK(ended.code == 2);
  CHECK_THAT(ended.err, ContainsSubstring("mpirun -x MASTER_ADDR=HOST"));
  const Ended given =
      agents.run(kOpenMpi + Words{"2", "-x", "MASTER_ADDR=127.0.0.1", drun_program(), "true"});
  INFO(given.err);
  CHECK(given.code == 0);
}

TEST_CASE("under Hydra's mpiexec, drun and the program are the whole command") {
  if (!works(kHydra)) {
    WARN("skipped: no mpiexec.hydra (mpich)");
    return;
  }
  check_three_agents(kHydra + Words{}, " none");
}

}  // namespace drun::testing
