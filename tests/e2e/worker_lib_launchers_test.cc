// Runs one unchanged program under every launcher on this machine.
#include <unistd.h>

#include "tests/support/catch.h"
#include "tests/support/job.h"
#include "tests/support/mpi_launchers.h"
#include "tests/support/places.h"
#include "tests/support/process.h"
#include "tests/support/slurm_cluster.h"

namespace drun::testing {
namespace {

const std::string kAllReduce = built("examples/all_reduce");

// Without the variables of a launcher that runs these tests.
Launch under(Words argv) {
  Launch launch{.argv = std::move(argv)};
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                           "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE"}) {
    launch.environment[name] = std::nullopt;
  }
  return launch;
}

bool ends_well(const Words& argv) {
  const Words quiet = Words{"/bin/sh", "-c", "exec \"$@\" >/dev/null 2>&1", "sh"} + argv;
  return run(under(quiet), 60s).code == 0;
}

void check_sums(const Ended& ended, int ranks) {
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.out, ContainsSubstring(std::to_string(ranks) +
                                          " ranks: 1000003 numbers summed, all exact\n"));
}

const Words kMpirun = {"mpirun", "--allow-run-as-root", "--oversubscribe", "-n"};

}  // namespace

TEST_CASE("a worker runs under Open MPI's mpirun, without any address") {
  if (!test::has_open_mpi()) {
    WARN("skipped: no mpirun of Open MPI (openmpi-bin)");
    return;
  }
  check_sums(run(under(kMpirun + Words{"3", kAllReduce}), 60s), 3);
}

TEST_CASE("a program started by mpirun uses MPI itself, if it is built with it") {
  const std::string program = kAllReduce.substr(0, kAllReduce.rfind('/')) + "/collectives_mpi";
  if (!test::has_open_mpi() || access(program.c_str(), X_OK) != 0) {
    WARN("skipped: no mpirun of Open MPI (openmpi-bin), or built without MPI (libopenmpi-dev)");
    return;
  }
  for (const char* ranks : {"1", "3"}) {
    Launch launch = under(kMpirun + Words{ranks, program, "mpi"});
    launch.environment["ASAN_OPTIONS"] = "detect_leaks=0";  // Open MPI leaks some memory
    const Ended ended = run(launch, 60s);
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
    CHECK_THAT(ended.out, ContainsSubstring(std::string(ranks) + " rank"));
  }
}

TEST_CASE(
    "MPI rejects counts above its limit, and never frees a buffer that still receives a message; "
    "with DRUN_DEBUG=1 counts that differ are a mismatch") {
  const std::string program = built("workers/mpi_failures");
  if (!test::has_open_mpi() || access(program.c_str(), X_OK) != 0) {
    WARN("skipped: no mpirun of Open MPI (openmpi-bin), or built without MPI (libopenmpi-dev)");
    return;
  }
  for (const bool is_debug : {false, true}) {
    Launch launch = under(kMpirun + Words{"2", program});
    launch.environment["ASAN_OPTIONS"] = "detect_leaks=0";  // Open MPI leaks some memory
    if (is_debug) launch.environment["DRUN_DEBUG"] = "1";
    const Ended ended = run(launch, 60s);
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
    CHECK_THAT(ended.out, ContainsSubstring("as it should be"));
  }
}

TEST_CASE("a worker runs under Hydra's mpiexec, also behind a shell") {
  if (!test::has_hydra()) {
    WARN("skipped: no mpiexec.hydra (mpich)");
    return;
  }
  check_sums(run(under({"mpiexec.hydra", "-n", "3", kAllReduce}), 60s), 3);
  check_sums(run(under({"mpiexec.hydra", "-n", "2", "/bin/sh", "-c", kAllReduce + "; true"}), 60s),
             2);
}

TEST_CASE("a worker runs under srun, on one node and on several", "[slurm]") {
  const SlurmCluster slurm;
  if (!is_there(slurm)) return;
  check_sums(slurm.run({"srun", "-N1", "-n2", "--overcommit", kAllReduce}), 2);
  const std::string port = std::to_string(free_port());
  check_sums(slurm.run({"srun", "-N3", "-n3", "env", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port,
                        kAllReduce}),
             3);
}

TEST_CASE("a worker runs under torchrun") {
  Words torchrun;
  for (const char* python : {"python3", "/usr/bin/python3"}) {
    const Words argv = {python, "-m", "torch.distributed.run"};
    if (torchrun.empty() && ends_well(argv + Words{"--help"})) torchrun = argv;
  }
  if (torchrun.empty()) {
    WARN("skipped: no python3 with torch.distributed.run (python3-torch)");
    return;
  }
  // Debian's torch 1.13 cannot parse its default --redirects and --tee under Python 3.11.
  const TemporaryDirectory logs;
  const Words options = {"--nnodes=1",
                         "--nproc_per_node=2",
                         "--master_addr=127.0.0.1",
                         "--master_port=" + std::to_string(free_port()),
                         "--redirects=1",
                         "--tee=1",
                         "--log_dir=" + logs.path(),
                         "--no_python"};
  check_sums(run(under(torchrun + options + Words{kAllReduce}), 120s), 2);
}

TEST_CASE("a worker runs without a launcher if its variables are set") {
  const std::string script =
      "for r in 0 1 2; do MASTER_ADDR=127.0.0.1 MASTER_PORT=$1 RANK=$r WORLD_SIZE=3 $2 & done; "
      "wait";
  check_sums(
      run(under({"/bin/sh", "-c", script, "sh", std::to_string(free_port()), kAllReduce}), 60s), 3);
}

TEST_CASE("drun under mpirun is an agent and starts its workers itself") {
  if (!test::has_open_mpi()) {
    WARN("skipped: no mpirun of Open MPI (openmpi-bin)");
    return;
  }
  const Words job = {drun_program(), "--standalone", "--nproc_per_node=2", kAllReduce};
  check_sums(run(under(kMpirun + Words{"1"} + job), 60s), 2);
}

TEST_CASE("an incomplete set of the agent's variables is an error even under mpirun") {
  if (!test::has_open_mpi()) {
    WARN("skipped: no mpirun of Open MPI (openmpi-bin)");
    return;
  }
  Launch launch = under(kMpirun + Words{"1", kAllReduce});
  launch.environment["WORLD_SIZE"] = "4";
  const Ended ended = run(launch, 60s);
  CHECK(ended.code != 0);
  CHECK_THAT(ended.err, ContainsSubstring("RANK is not set"));
  CHECK_THAT(ended.err, ContainsSubstring("unset WORLD_SIZE, and the variables of Open MPI count"));
}

}  // namespace drun::testing
