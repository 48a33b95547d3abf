#include "worker_lib/start/init_plan.h"

#include "tests/support/catch.h"
#include "tests/support/variables.h"

namespace drun::worker {
namespace {

using test::lookup_in;
using test::Variables;

Result<WorkerIdentity> identify(const Variables& variables) {
  return worker::identify(lookup_in(variables), [](std::string_view program) {
    return program == "hydra_pmi_proxy" ? std::optional<int>(4711) : std::nullopt;
  });
}

std::string identity_error(const Variables& variables) {
  const Result<WorkerIdentity> result = identify(variables);
  return result ? "no error" : result.error().message;
}

Variables operator+(Variables left, const Variables& right) {
  return test::with(std::move(left), right);
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

Variables agent() {
  return {{"RANK", "5"},        {"WORLD_SIZE", "8"},          {"LOCAL_RANK", "1"},
          {"MASTER_PORT", "1"}, {"MASTER_ADDR", "10.0.0.1"},  {"LOCAL_WORLD_SIZE", "4"},
          {"GROUP_RANK", "1"},  {"TORCHELASTIC_RUN_ID", "a"}, {"TORCHELASTIC_RESTART_COUNT", "2"}};
}
Variables open_mpi() {
  return {{"OMPI_COMM_WORLD_RANK", "3"},       {"OMPI_COMM_WORLD_SIZE", "8"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "3"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "8"},
          {"OMPI_COMM_WORLD_NODE_RANK", "3"},  {"PMIX_RANK", "3"},
          {"PMIX_NAMESPACE", "1060044801"}};
}
Variables hydra() {
  return {{"PMI_RANK", "1"},
          {"PMI_SIZE", "4"},
          {"PMI_FD", "6"},
          {"MPI_LOCALRANKID", "1"},
          {"MPI_LOCALNRANKS", "4"}};
}
// Task 2 of five, with three tasks on the first node and two on the second.
Variables slurm() {
  return {{"SLURM_JOB_ID", "77"},        {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", "2"},         {"SLURM_LOCALID", "2"},
          {"SLURM_NODEID", "0"},         {"SLURM_STEP_NUM_TASKS", "5"},
          {"SLURM_NTASKS", "5"},         {"SLURM_STEP_TASKS_PER_NODE", "3,2"},
          {"SLURM_STEP_NUM_NODES", "2"}, {"MASTER_ADDR", "node01"}};
}

struct Place {
  int rank;
  int size;
  int local_rank;
  int local_size;
  bool operator==(const Place&) const = default;
};

Place place_of(const Variables& variables) {
  const Result<WorkerIdentity> result = identify(variables);
  INFO((result ? "" : result.error().message));
  REQUIRE(result);
  return {result->rank, result->world.world_size, result->local_rank,
          result->world.local_world_size};
}

bool is_derived(std::uint16_t port) {
  return port >= kFirstDerivedPort && port - kFirstDerivedPort < kDerivedPorts;
}

}  // namespace

TEST_CASE("every launcher is recognized by its own variables") {
  CHECK(place_of(agent()) == Place{5, 8, 1, 4});
  CHECK(place_of(without(agent(), "TORCHELASTIC_RUN_ID")) == Place{5, 8, 1, 4});
  CHECK(place_of(open_mpi()) == Place{3, 8, 3, 8});
  CHECK(place_of(hydra()) == Place{1, 4, 1, 4});
  CHECK(place_of(slurm()) == Place{2, 5, 2, 3});
}

TEST_CASE("an agent takes precedence over the engine that started it") {
  const Variables engine = GENERATE(open_mpi(), hydra(), slurm(), open_mpi() + slurm());
  CHECK(place_of(engine + agent()) == Place{5, 8, 1, 4});
}

TEST_CASE("mpirun takes precedence over srun") {
  // The variables that srun sets for mpirun's daemon on this node.
  const Variables daemon = slurm() + Variables{{"SLURM_PROCID", "0"},
                                               {"SLURM_LOCALID", "0"},
                                               {"SLURM_STEP_NUM_TASKS", "2"},
                                               {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}};
  const Variables pmi2 = {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}};
  CHECK(place_of(open_mpi() + daemon) == Place{3, 8, 3, 8});
  CHECK(place_of(hydra() + daemon) == Place{1, 4, 1, 4});
  CHECK(place_of(open_mpi() + daemon + pmi2) == Place{3, 8, 3, 8});
}

TEST_CASE("a rank that srun passes through PMI is Slurm's own") {
  CHECK(place_of(slurm() + Variables{{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "s"}}) ==
        Place{2, 5, 2, 3});
  CHECK(place_of(slurm() + Variables{{"PMI_RANK", "2"}, {"PMI_SIZE", "5"}, {"PMI_FD", "9"}}) ==
        Place{2, 5, 2, 3});
  CHECK_THAT(identity_error(slurm() + Variables{{"PMIX_RANK", "4"}}),
             ContainsSubstring("this process is PMIx rank 4 of ? and Slurm rank 2 of 5"));
  CHECK_THAT(identity_error(slurm() + Variables{{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}}),
             ContainsSubstring("this process is Hydra rank 2 of 4 and Slurm rank 2 of 5"));
}

TEST_CASE("contradictory MPI launchers are both named in the error") {
  CHECK_THAT(identity_error(open_mpi() + hydra()),
             ContainsSubstring("this process is Hydra rank 1 of 4 and Open MPI rank 3 of 8"));
  const Variables agreeing = {
      {"PMI_RANK", "3"}, {"PMI_SIZE", "8"}, {"MPI_LOCALRANKID", "3"}, {"MPI_LOCALNRANKS", "8"}};
  CHECK(identify(open_mpi() + agreeing)->world.run_id == "Open MPI 1060044801");
}

TEST_CASE("an incomplete set of variables is an error that names the missing one") {
  for (const auto& variables : {open_mpi(), hydra(), slurm()}) {
    for (const auto& [name, value] : variables) {
      const bool is_one = name.find("RANK") != std::string::npos ||
                          name.find("SIZE") != std::string::npos || name == "SLURM_PROCID" ||
                          name == "SLURM_LOCALID";
      if (!is_one || name.find("NODE_RANK") != std::string::npos || name == "PMIX_RANK") continue;
      INFO(name);
      CHECK_THAT(identity_error(without(variables, name)), ContainsSubstring(name));
      CHECK_THAT(identity_error(without(variables, name)), ContainsSubstring("not set"));
    }
  }
  CHECK_THAT(identity_error({{"PMIX_RANK", "0"}}), ContainsSubstring("(the number of ranks)"));
  CHECK_THAT(identity_error({}), ContainsSubstring("WORLD_SIZE is not set; start this program"));
}

TEST_CASE("an incomplete set of agent variables is an error, without a fallback to the engine") {
  CHECK_THAT(identity_error(without(agent(), "RANK")), ContainsSubstring("RANK is not set"));
  CHECK_THAT(identity_error(open_mpi() + Variables{{"WORLD_SIZE", "4"}}),
             ContainsSubstring("unset WORLD_SIZE, and the variables of Open MPI count"));
  CHECK_THAT(identity_error(open_mpi() + Variables{{"RANK", "4"}}),
             ContainsSubstring("WORLD_SIZE is not set"));
  CHECK_THAT(identity_error(open_mpi() + Variables{{"RANK", "4"}, {"WORLD_SIZE", "8"}}),
             ContainsSubstring("MASTER_ADDR is not set"));
}

TEST_CASE("invalid numbers are shown in the error") {
  CHECK_THAT(identity_error(open_mpi() + Variables{{"OMPI_COMM_WORLD_RANK", "8"}}),
             ContainsSubstring("OMPI_COMM_WORLD_RANK does not fit OMPI_COMM_WORLD_SIZE=8"));
  CHECK_THAT(identity_error(open_mpi() + Variables{{"OMPI_COMM_WORLD_LOCAL_SIZE", "9"}}),
             ContainsSubstring("OMPI_COMM_WORLD_LOCAL_SIZE does not fit OMPI_COMM_WORLD_SIZE=8"));
  for (const char* bad : {"-1", "two", "1 ", "99999999999999999999"}) {
    CHECK_THAT(identity_error(hydra() + Variables{{"PMI_RANK", bad}}),
               ContainsSubstring("PMI_RANK=\"" + std::string(bad) + "\""));
  }
  CHECK_THAT(identity_error(slurm() + Variables{{"SLURM_STEP_TASKS_PER_NODE", "3(x"}}),
             ContainsSubstring("SLURM_STEP_TASKS_PER_NODE=\"3(x\""));
}

TEST_CASE("a Slurm batch script is not a rank") {
  const std::string step = GENERATE("", "4294967291", "4294967290", "batch");
  Variables batch = slurm();
  batch["SLURM_STEP_ID"] = step;
  CHECK_THAT(identity_error(batch), ContainsSubstring("WORLD_SIZE is not set"));
  CHECK_THAT(identity_error(batch), ContainsSubstring("start it with srun"));
}

TEST_CASE("on one node the address and port of the store are derived from the job") {
  const Result<WorkerIdentity> mpi = identify(open_mpi());
  REQUIRE(mpi);
  CHECK(mpi->world.master_addr == "127.0.0.1");
  CHECK(is_derived(mpi->world.master_port));
  CHECK(mpi->world.run_id == "Open MPI 1060044801");
  const Variables other_rank = {
      {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"PMIX_RANK", "0"}};
  CHECK(identify(open_mpi() + other_rank)->world.master_port == mpi->world.master_port);
  CHECK(identify(open_mpi() + Variables{{"PMIX_NAMESPACE", "1060044802"}})->world.master_port !=
        mpi->world.master_port);
  CHECK(identify(hydra())->world.run_id == "Hydra 4711");
  CHECK(is_derived(identify(hydra())->world.master_port));
}

TEST_CASE("MASTER_ADDR and MASTER_PORT override the derived values") {
  const Variables address = {{"MASTER_ADDR", "10.1.1.1"}, {"MASTER_PORT", "29501"}};
  for (const auto& variables : {open_mpi(), hydra(), slurm()}) {
    const Result<WorkerIdentity> result = identify(variables + address);
    REQUIRE(result);
    CHECK(result->world.master_addr == "10.1.1.1");
    CHECK(result->world.master_port == 29501);
  }
  CHECK_THAT(identity_error(hydra() + Variables{{"MASTER_PORT", "70000"}}),
             ContainsSubstring("MASTER_PORT=\"70000\""));
}

TEST_CASE("with several nodes the store's address is required") {
  CHECK_THAT(identity_error(without(slurm(), "MASTER_ADDR")),
             ContainsSubstring("Slurm started 3 of 5 ranks on this node") &&
                 ContainsSubstring("export MASTER_ADDR="));
  const Result<WorkerIdentity> both = identify(slurm());
  REQUIRE(both);
  CHECK(both->world.node_count == 2);
  CHECK(is_derived(both->world.master_port));
  // Hydra's processes on different nodes share no identifier.
  CHECK_THAT(identity_error(hydra() + Variables{{"MPI_LOCALNRANKS", "2"}, {"MASTER_ADDR", "a"}}),
             ContainsSubstring("export MASTER_PORT="));
}

TEST_CASE("a single rank needs no store address") {
  const Variables alone = {
      {"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}};
  CHECK(worker::identify(lookup_in(alone), {}).has_value());
}

TEST_CASE("lists of counts are parsed in Slurm's format") {
  CHECK(entry_of_counts("4", 0) == 4);
  CHECK(entry_of_counts("2(x3),1", 0) == 2);
  CHECK(entry_of_counts("2(x3),1", 2) == 2);
  CHECK(entry_of_counts("2(x3),1", 3) == 1);
  for (const char* bad :
       {"", "2(x3),1", "x", "2(", "2(x", "2(x)", "(x2)", "0", "2(x0)", "2)", ","}) {
    INFO(bad);
    CHECK(entry_of_counts(bad, 4) == std::nullopt);
  }
}

}  // namespace drun::worker
