#include "launcher/engines/detect.h"

#include <algorithm>
#include <iterator>

namespace drun::engines {

std::optional<Facts> detect(const EngineContext& context) {
  if (!is_started_within_step(context)) {
    if (auto facts = slurm_step(context)) return facts;
  }
  for (const auto rule : {open_mpi, hydra, pmix, lsf, pbs, kubernetes, slurm_allocation}) {
    if (auto facts = rule(context)) return facts;
  }
  return std::nullopt;
}

namespace {

constexpr std::string_view kNames[] = {
    // Slurm: the task, and sizes that a nested srun would treat as options.
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_GTIDS",
    "SLURM_TASK_PID",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_TASKS_PER_NODE",
    "SLURM_STEP_ID",
    "SLURM_STEPID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_TASKS_PER_NODE",
    // Open MPI: with its daemon's variables, MPI_Init in a worker would connect to that daemon.
    "OMPI_UNIVERSE_SIZE",
    "OMPI_NUM_APP_CTX",
    "OMPI_FIRST_RANKS",
    "OMPI_APP_CTX_NUM_PROCS",
    "OMPI_COMMAND",
    "OMPI_ARGV",
    "OMPI_FILE_LOCATION",
    "OMPI_MCA_ess",
    "OMPI_MCA_pmix",
    "OMPI_MCA_initial_wdir",
    // Hydra and its relatives.
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "HYDI_CONTROL_FD",
    // Others.
    "FLUX_TASK_RANK",
    "FLUX_TASK_LOCAL_ID",
    "LSF_PM_TASKID",
    "PBS_TASKNUM",
};

constexpr std::string_view kPrefixes[] = {
    "OMPI_COMM_WORLD_",
    "OMPI_MCA_ess_",
    "OMPI_MCA_orte_",
    "MV2_COMM_WORLD_",
    "PMI_",
    "PMIX_",
    "PALS_",
    "JSM_NAMESPACE_",
};

// The user's settings for the PMIx library.
constexpr std::string_view kUsers = "PMIX_MCA_";

}  // namespace

bool is_foreign(std::string_view variable) {
  if (variable.starts_with(kUsers)) return false;
  return std::find(std::begin(kNames), std::end(kNames), variable) != std::end(kNames) ||
         std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [variable](std::string_view each) { return variable.starts_with(each); });
}

}  // namespace drun::engines
