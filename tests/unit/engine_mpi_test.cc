// Tests the variables of MPI launchers, as Open MPI 4.1 and Hydra 4.0 set them.
#include "launcher/engines/detect.h"

#include "tests/support/catch.h"
#include "tests/support/engine_surroundings.h"

namespace drun::engines {
namespace {

using test::around;
using test::facts_of;
using test::Variables;
using test::with;

const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "3"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                            {"OMPI_COMM_WORLD_NODE_RANK", "0"},
                            {"OMPI_UNIVERSE_SIZE", "24"},
                            {"PMIX_RANK", "1"},
                            {"PMIX_NAMESPACE", "529989633"}};
const Variables kHydra = {
    {"PMI_RANK", "1"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}};

}  // namespace

TEST_CASE("each mpirun process is a node, and its global rank is the node rank") {
  const Facts facts = facts_of(with(kOpenMpi, {{"MASTER_ADDR", "gpu7"}}));
  CHECK(facts.engine == "Open MPI");
  CHECK(facts.nodes == EngineFact<int>{3, "OMPI_COMM_WORLD_SIZE"});
  CHECK(facts.node_rank == EngineFact<int>{1, "OMPI_COMM_WORLD_RANK"});
  CHECK(facts.master_addr == EngineFact<std::string>{"gpu7", "MASTER_ADDR"});
  CHECK(facts.run_id == EngineFact<std::string>{"mpi-529989633", "PMIX_NAMESPACE"});
  CHECK(facts.master_port->from == "PMIX_NAMESPACE");
  CHECK(facts.master_port->value >= 61440);
  CHECK(facts.warnings.empty());
  CHECK(facts_of(with(kOpenMpi, {{"MASTER_PORT", "1234"}})).master_port ==
        EngineFact<int>{1234, "MASTER_PORT"});
}

TEST_CASE("mpirun on several machines provides no master address, and drun does not guess one") {
  const Facts open_mpi = facts_of(kOpenMpi);
  CHECK_FALSE(open_mpi.master_addr);
  CHECK_THAT(open_mpi.no_master, ContainsSubstring("mpirun -x MASTER_ADDR=HOST"));
  const Facts hydra = facts_of(kHydra);
  CHECK_FALSE(hydra.master_addr);
  CHECK_THAT(hydra.no_master, ContainsSubstring("mpiexec -genv MASTER_ADDR HOST"));
  // without the number of ranks on this machine
  CHECK_FALSE(facts_of(with(kHydra, {{"MPI_LOCALNRANKS", ""}})).master_addr);
}

TEST_CASE("rank 0 shares its address and the run id with the other ranks over PMI") {
  std::optional<std::string> heard;
  engines::EngineContext first = around(with(kHydra, {{"PMI_RANK", "0"}}), "gpu0");
  first.random_id = "abc123";
  first.meeting = [&heard](const std::optional<std::string>& told) -> Result<MeetingResult> {
    if (told) heard = told;
    return MeetingResult{.text = *heard};
  };
  const Variables names = {{"gpu0", "192.0.2.1"}};
  first.addresses_of = [names](const std::string& name) -> std::vector<std::string> {
    const auto found = names.find(name);
    if (found == names.end()) return {};
    return {"127.0.1.1", found->second};
  };
  first.addresses = {"127.0.0.1", "192.0.2.1", "198.51.100.7", "fe80::1"};
  const auto told = hydra(first);
  CHECK(heard == "gpu0/abc123");
  CHECK(told->master_addr == EngineFact<std::string>{"gpu0", "PMI, from rank 0"});
  CHECK(told->run_id == EngineFact<std::string>{"mpi-abc123", "PMI, from rank 0"});
  CHECK(told->master_port->value >= 61440);
  CHECK(told->wrong.empty());

  engines::EngineContext other = around(kHydra, "gpu1");
  other.meeting = first.meeting;
  CHECK(hydra(other)->master_addr == told->master_addr);
  CHECK(hydra(other)->master_port == told->master_port);

  // If the host name resolves to no address of this machine, rank 0 shares its only address, or
  // none if it has several.
  first.hostname = "nameless";
  CHECK_FALSE(hydra(first)->master_addr);
  CHECK(heard == "/abc123");
  CHECK_THAT(hydra(first)->no_master, ContainsSubstring("mpiexec -genv MASTER_ADDR HOST"));
  first.addresses = {"127.0.0.1", "192.0.2.1", "169.254.3.3", "2001:db8::1"};
  CHECK(hydra(first)->master_addr->value == "192.0.2.1");
  first.hostname = "gpu0";
  first.addresses = {"127.0.0.1", "198.51.100.7"};  // 192.0.2.1 belongs to another machine
  CHECK(hydra(first)->master_addr->value == "198.51.100.7");
}

TEST_CASE("ranks exchange nothing if MASTER_ADDR is set, and only the run id on one machine") {
  int meetings = 0;
  engines::EngineContext one = around(with(kHydra, {{"MASTER_ADDR", "gpu7"}}));
  one.meeting = [&meetings](const auto&) -> Result<MeetingResult> {
    ++meetings;
    return MeetingResult{.text = "gpu0/abc"};
  };
  CHECK(hydra(one)->master_addr->value == "gpu7");
  CHECK(meetings == 0);
  engines::EngineContext together = around(with(kHydra, {{"MPI_LOCALNRANKS", "3"}}));
  together.meeting = one.meeting;
  const auto facts = hydra(together);
  CHECK(facts->master_addr->value == "127.0.0.1");
  CHECK(facts->run_id->value == "mpi-abc");
  CHECK(meetings == 1);
}

TEST_CASE("a failed exchange between ranks is an error with a remedy") {
  engines::EngineContext one = around(kHydra);
  one.meeting = [](const auto&) -> Result<MeetingResult> {
    return Error{ErrorCode::Timeout, "no answer within 9 ms"};
  };
  CHECK_THAT(hydra(one)->wrong, ContainsSubstring("no answer within 9 ms") &&
                                    ContainsSubstring("mpiexec -genv MASTER_ADDR HOST"));
  one.meeting = [](const auto&) -> Result<MeetingResult> {
    return MeetingResult{.text = "nonsense"};
  };
  CHECK_THAT(hydra(one)->wrong, ContainsSubstring("\"nonsense\" is not what rank 0 sends"));
}

TEST_CASE("under Open MPI rank 0 shares its address over PMIx if ranks run on several machines") {
  int meetings = 0;
  engines::EngineContext one = around(with(kOpenMpi, {{"PMIX_NAMESPACE", "prterun-a-7@1"}}));
  one.meeting = [&meetings](const auto&) -> Result<MeetingResult> {
    ++meetings;
    return MeetingResult{.text = "gpu0/abc", .processes = 3};
  };
  const auto facts = open_mpi(one);
  CHECK(facts->master_addr == EngineFact<std::string>{"gpu0", "PMIx, from rank 0"});
  CHECK(facts->run_id->value == "mpi-prterun-a-7@1");
  CHECK(meetings == 1);
  one.variables = around(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}})).variables;
  CHECK(open_mpi(one)->master_addr->value == "127.0.0.1");
  one.variables = around(with(kOpenMpi, {{"MASTER_ADDR", "gpu7"}})).variables;
  CHECK(open_mpi(one)->master_addr->value == "gpu7");
  CHECK(meetings == 1);

  // A missing PMIx library is not an error, but an error from PMIx is.
  one.variables = around(kOpenMpi).variables;
  one.meeting = [](const auto&) -> Result<MeetingResult> {
    return Error{ErrorCode::Unreachable, "libpmix.so.2: cannot open shared object file"};
  };
  CHECK(open_mpi(one)->wrong.empty());
  CHECK_THAT(open_mpi(one)->no_master, ContainsSubstring("mpirun -x MASTER_ADDR=HOST"));
  one.meeting = [](const auto&) -> Result<MeetingResult> {
    return Error{ErrorCode::Refused, "PMIx_Init: UNREACHABLE"};
  };
  CHECK_THAT(open_mpi(one)->wrong, ContainsSubstring("cannot meet over PMIx: PMIx_Init"));
}

TEST_CASE(
    "PMIx alone provides the node count and node 0's address if its ranks can exchange data") {
  engines::EngineContext one = around({{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "prterun-a-7@1"}});
  one.meeting = [](const auto&) -> Result<MeetingResult> {
    return MeetingResult{.text = "gpu0/abc", .processes = 4};
  };
  const auto facts = pmix(one);
  CHECK(facts->nodes == EngineFact<int>{4, "PMIx"});
  CHECK(facts->node_rank->value == 1);
  CHECK(facts->master_addr->value == "gpu0");
  CHECK(facts->run_id->value == "pmix-prterun-a-7@1");
  CHECK(facts->missing.empty());
  one.meeting = {};
  CHECK_THAT(pmix(one)->missing, ContainsSubstring("give --nnodes"));
}

TEST_CASE("localhost is accepted only if all ranks are on this machine") {
  const Facts all = facts_of(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}}));
  CHECK(all.master_addr->value == "127.0.0.1");
  CHECK_THAT(all.master_addr->from, ContainsSubstring("OMPI_COMM_WORLD_LOCAL_SIZE"));
  CHECK(all.warnings.empty());  // only rank 0 warns
  const Facts first = facts_of(
      with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}, {"OMPI_COMM_WORLD_RANK", "0"}}));
  REQUIRE(first.warnings.size() == 1);
  CHECK_THAT(first.warnings.front(), ContainsSubstring("mpirun --map-by ppr:1:node drun"));
  CHECK(facts_of(with(kHydra, {{"MPI_LOCALNRANKS", "3"}})).master_addr->value == "127.0.0.1");
  for (const char* self : {"localhost", "127.0.1.1", "::1"}) {
    CHECK_THAT(facts_of(with(kOpenMpi, {{"MASTER_ADDR", self}})).wrong,
               ContainsSubstring("is every machine itself, but only 1 of the ranks"));
  }
}

TEST_CASE("within a Slurm, PBS or LSF job node 0 is the first host, if rank 0 runs there") {
  const Variables slurm = with(kOpenMpi, {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "n[4-6]"}});
  CHECK(facts_of(slurm).master_addr == EngineFact<std::string>{"n4", "SLURM_JOB_NODELIST"});
  CHECK(facts_of(slurm).is_slurm_name);
  const Variables first = with(slurm, {{"OMPI_COMM_WORLD_RANK", "0"}});
  CHECK(facts_of(first, "n4.cluster.example").wrong == "");
  CHECK(facts_of(with(first, {{"SLURMD_NODENAME", "n4"}}), "other").wrong == "");
  CHECK_THAT(facts_of(first, "login").wrong,
             ContainsSubstring("rank 0 is on login, but the first host of SLURM_JOB_NODELIST"));
  const Variables pbs = with(kHydra, {{"PBS_JOBID", "9.srv"}, {"PBS_NODEFILE", "/n"}});
  CHECK(facts_of(pbs, "b", {{"/n", "a\na\nb\nc\n"}}).master_addr ==
        EngineFact<std::string>{"a", "PBS_NODEFILE"});
  CHECK_FALSE(facts_of(pbs, "b", {{"/n", "a\na\nb\nc\n"}}).is_slurm_name);
  const Variables lsf = with(kHydra, {{"LSB_JOBID", "9"}, {"LSB_MCPU_HOSTS", "x 4 y 4 z 4"}});
  CHECK(facts_of(lsf).master_addr == EngineFact<std::string>{"x", "LSB_MCPU_HOSTS"});
}

TEST_CASE("with Open MPI 4 node 0 is the host of mpirun, if it has one address and runs rank 0") {
  const auto uri = [](const std::string& addresses) {
    return Variables{{"OMPI_MCA_orte_hnp_uri",
                      "529989632.0;tcp://" + addresses + ":32903;tcp6://[fd00::2]:60963"}};
  };
  const Facts facts = facts_of(with(kOpenMpi, uri("192.0.2.2")));
  CHECK(facts.master_addr == EngineFact<std::string>{"192.0.2.2", "OMPI_MCA_orte_hnp_uri"});
  CHECK(facts.wrong == "");
  for (const char* none : {"192.0.2.2,172.17.0.1", "127.0.0.1", "", "host"})
    CHECK_FALSE(facts_of(with(kOpenMpi, uri(none))).master_addr);
  CHECK_FALSE(
      facts_of(with(kOpenMpi, {{"OMPI_MCA_orte_hnp_uri", "5.0;tcp6://[fd00::2]:6"}})).master_addr);
  Variables first = with(with(kOpenMpi, uri("192.0.2.2")), {{"OMPI_COMM_WORLD_RANK", "0"}});
  CHECK_THAT(facts_of(first).wrong, ContainsSubstring("is not where mpirun runs (192.0.2.2)"));
  first["OMPI_MCA_orte_local_daemon_uri"] = first["OMPI_MCA_orte_hnp_uri"];
  CHECK(facts_of(first).wrong == "");
}

TEST_CASE("an incomplete set of launcher variables is an error that names the missing ones") {
  CHECK(facts_of(with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", ""}})).missing == "OMPI_COMM_WORLD_SIZE");
  CHECK(facts_of(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", ""}})).missing == "OMPI_COMM_WORLD_RANK");
  CHECK(facts_of({{"PMI_RANK", "1"}}).missing == "PMI_SIZE");
  // mpiexec -pmi-port
  CHECK(facts_of({{"PMI_PORT", "a:1"}, {"PMI_ID", "0"}}).missing == "PMI_SIZE, PMI_RANK");
  CHECK_THAT(facts_of(with(kHydra, {{"PMI_RANK", "3"}})).wrong,
             ContainsSubstring("PMI_RANK=3 is not under PMI_SIZE=3"));
  CHECK_THAT(facts_of(with(kHydra, {{"PMI_RANK", "x"}})).wrong, ContainsSubstring("whole number"));
  CHECK_THAT(facts_of(with(kHydra, {{"MASTER_PORT", "70000"}})).wrong,
             ContainsSubstring("not a port"));
}

TEST_CASE("PMIx alone provides a rank but no node count") {
  const Facts facts = facts_of({{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "prterun-a-1@1"}});
  CHECK(facts.engine == "PMIx");
  CHECK(facts.node_rank == EngineFact<int>{2, "PMIX_RANK"});
  CHECK_FALSE(facts.nodes);
  CHECK_THAT(facts.missing, ContainsSubstring("give --nnodes"));
  CHECK(facts.run_id->value == "pmix-prterun-a-1@1");
  CHECK_FALSE(facts.master_addr);
}

TEST_CASE("a launcher's job name that cannot be part of a path is not used as the run id") {
  const Facts facts =
      facts_of(with(kOpenMpi, {{"PMIX_NAMESPACE", "../../x"}, {"OMPI_MCA_ess_base_jobid", "77"}}));
  CHECK(facts.run_id == EngineFact<std::string>{"mpi-77", "OMPI_MCA_ess_base_jobid"});
  CHECK_FALSE(facts_of(with(kOpenMpi, {{"PMIX_NAMESPACE", std::string(999, 'x')}})).run_id);
}

TEST_CASE("Open MPI takes precedence over PMI, and PMI over PMIx") {
  CHECK(facts_of(with(kOpenMpi, kHydra)).engine == "Open MPI");
  CHECK(facts_of(with(kHydra, {{"PMIX_RANK", "0"}})).engine == "PMI (Hydra)");
  CHECK(facts_of(with(kHydra, {{"LSB_JOBID", "1"}})).engine == "PMI (Hydra)");
  CHECK_FALSE(detect(around({{"PATH", "/bin"}, {"RANK", "3"}, {"WORLD_SIZE", "4"}})));
}

}  // namespace drun::engines
