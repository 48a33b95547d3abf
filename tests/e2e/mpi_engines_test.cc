// Tests drun's agents under real MPI launchers, with three nodes on this machine.
#include <unistd.h>

#include "tests/support/catch.h"
#include "tests/support/job.h"
#include "tests/support/mpi_launchers.h"

namespace drun::testing {
namespace {

const Words kOpenMpi = {"mpirun", "--allow-run-as-root", "--oversubscribe", "-np"};
const Words kHydra = {"mpiexec.hydra", "-n"};

// Uses one output file for each rank, because all write at the same time.
const std::string kWhoUnderMpi =
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

void check_three_agents(const Words& mpirun, const std::string& run_id) {
  const Agents agents;
  const Ended ended = agents.run(mpirun + Words{"3", drun_program(), "sh", "-c", kWhoUnderMpi});
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  const std::string first = agents.rank(0);
  CHECK_THAT(first, ContainsSubstring("0/3 127.0.0.1:"));
  CHECK_THAT(first, ContainsSubstring(run_id));
  CHECK_THAT(first, ContainsSubstring(" .\n"));  // no variable of the launcher reached the worker
  CHECK(agents.rank(1) == "1" + first.substr(1));
  CHECK(agents.rank(2) == "2" + first.substr(1));
  CHECK_THAT(ended.err, ContainsSubstring("3 drun agents on this machine"));
}

// Two machines: network namespaces, each with an address and a host name, and a replacement for ssh
// from the first to the second.
class TwoMachines {
 public:
  TwoMachines() : a_("drunma" + std::to_string(getpid())), b_("drunmb" + std::to_string(getpid())) {
    const std::string script =
        "ip netns add $0 && ip netns add $1 && "
        "ip -n $0 link add v0 type veth peer name v0 netns $1 && "
        "ip -n $0 addr add 10.99.0.1/24 dev v0 && "
        "ip -n $1 addr add 10.99.0.2/24 dev v0 && "
        "for n in $0 $1; do ip -n $n link set lo up && "
        "ip -n $n link set v0 up || exit 1; done";
    const Ended ended = run(Launch{.argv = {"sh", "-c", script, a_, b_}}, 20s);
    why_not_ = ended.code == 0 ? "" : "no network namespaces: " + ended.err;
    write_file(hosts(), "127.0.0.1 localhost\n10.99.0.1 nodea\n10.99.0.2 nodeb\n");
    // The arguments are ssh's options, a host, and a command of several words.
    write_file(shell(),
               "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done; shift\n"
               "exec ip netns exec " +
                   b_ + " unshare -u sh -c \"" + become("nodeb") + "$*\"\n",
               true);
  }
  ~TwoMachines() {
    for (const std::string& name : {a_, b_}) run(Launch{.argv = {"ip", "netns", "del", name}}, 20s);
  }
  TwoMachines(const TwoMachines&) = delete;
  TwoMachines& operator=(const TwoMachines&) = delete;

  const std::string& why_not() const { return why_not_; }
  std::string shell() const { return agents_.directory.file("rsh"); }
  Ended run_on_first(const Words& argv) const {
    const Words enter = {
        "ip", "netns", "exec", a_, "unshare", "-u", "sh", "-c", become("nodea") + "exec \"$@\"",
        "sh"};
    return agents_.run(enter + argv);
  }
  void check_both(const Ended& ended, const std::string& place) const {
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
    CHECK_THAT(agents_.rank(0), ContainsSubstring("0/2 " + place + ":"));
    CHECK_THAT(agents_.rank(1), ContainsSubstring("1/2 " + place + ":"));
  }

 private:
  std::string hosts() const { return agents_.directory.file("hosts"); }
  // Runs in a namespace of `ip netns exec`, which has separate mounts.
  std::string become(const std::string& name) const {
    return "mount --bind " + hosts() + " /etc/hosts; hostname " + name + "; ";
  }

  Agents agents_;
  std::string a_;
  std::string b_;
  std::string why_not_;
};

// The command line of Open MPI's mpirun, with one rank on each machine.
Words over_two_machines(const TwoMachines& machines) {
  const bool is_4 = test::is_open_mpi_4();
  return {"mpirun",
          "--allow-run-as-root",
          is_4 ? "--mca" : "--prtemca",
          is_4 ? "plm_rsh_agent" : "plm_ssh_agent",
          machines.shell(),
          "--host",
          "nodea:1,nodeb:1",
          "-np",
          "2",
          "-x",
          "DIR"};
}

}  // namespace

TEST_CASE("under Open MPI's mpirun the command is only drun and the program") {
  if (!test::has_open_mpi()) {
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

TEST_CASE("mpirun with indistinguishable machines is an error instead of a guessed localhost") {
  if (!test::has_open_mpi()) {
    WARN("skipped: no mpirun of Open MPI (openmpi-bin)");
    return;
  }
  const Agents agents;
  // The variables of ranks on separate machines, without PMIx.
  const Words apart = {
      "env", "-u", "OMPI_MCA_orte_hnp_uri", "-u", "PMIX_NAMESPACE", "OMPI_COMM_WORLD_LOCAL_SIZE=1"};
  const Ended ended = agents.run(kOpenMpi + Words{"3"} + apart + Words{drun_program(), "true"});
  CHECK(ended.code == 2);
  CHECK_THAT(ended.err, ContainsSubstring("mpirun -x MASTER_ADDR=HOST"));
  const Ended given =
      agents.run(kOpenMpi + Words{"2", "-x", "MASTER_ADDR=127.0.0.1", drun_program(), "true"});
  INFO(given.err);
  CHECK(given.code == 0);
}

TEST_CASE("mpirun on two machines needs no address of node 0", "[namespaces]") {
  const TwoMachines machines;
  if (!test::has_open_mpi() || !machines.why_not().empty()) {
    WARN("skipped: no mpirun of Open MPI (openmpi-bin), or " << machines.why_not());
    return;
  }
  const Words program = {drun_program(), "--explain", "sh", "-c", kWhoUnderMpi};
  const Ended met = machines.run_on_first(over_two_machines(machines) + program);
  machines.check_both(met, "nodea");
  CHECK_THAT(met.err, ContainsSubstring("master address nodea: PMIx, from rank 0"));
}

TEST_CASE("without PMIx agents on two machines use the address of Open MPI 4's mpirun",
          "[namespaces]") {
  const TwoMachines machines;
  if (!test::has_open_mpi() || !machines.why_not().empty()) {
    WARN("skipped: no mpirun of Open MPI (openmpi-bin), or " << machines.why_not());
    return;
  }
  if (!test::is_open_mpi_4()) {
    WARN("skipped: this Open MPI is not version 4, and does not tell where mpirun runs");
    return;
  }
  const Words alone = {"env", "-u", "PMIX_NAMESPACE", drun_program(), "sh", "-c", kWhoUnderMpi};
  machines.check_both(machines.run_on_first(over_two_machines(machines) + alone), "10.99.0.1");
}

TEST_CASE("mpiexec on two machines needs no address of node 0", "[namespaces]") {
  const TwoMachines machines;
  if (!test::has_hydra() || !machines.why_not().empty()) {
    WARN("skipped: no mpiexec.hydra (mpich), or " << machines.why_not());
    return;
  }
  const Words mpiexec = {"mpiexec.hydra",
                         "-launcher",
                         "ssh",
                         "-launcher-exec",
                         machines.shell(),
                         "-hosts",
                         "10.99.0.1,10.99.0.2",
                         "-ppn",
                         "1",
                         "-n",
                         "2"};
  const Words program = {drun_program(), "sh", "-c", kWhoUnderMpi};
  machines.check_both(machines.run_on_first(mpiexec + program), "nodea");
  machines.check_both(
      machines.run_on_first(mpiexec + Words{"-genv", "MASTER_ADDR", "10.99.0.1"} + program),
      "10.99.0.1");
}

TEST_CASE("under Hydra's mpiexec the command is only drun and the program") {
  if (!test::has_hydra()) {
    WARN("skipped: no mpiexec.hydra (mpich)");
    return;
  }
  check_three_agents(kHydra + Words{}, " mpi-");
}

}  // namespace drun::testing
