// core. Facts from MPI launchers: Open MPI's mpirun, Hydra's mpiexec (MPICH, Intel MPI, MVAPICH)
// and others with PMI, and launchers with PMIx only. Each process is a node of the job.
//
// The launchers report rank and size but no list of nodes. The address of node 0 is the first of:
// MASTER_ADDR; this machine, if all ranks run on it; the first host of the Slurm, PBS or LSF job
// around the launcher; the machine of Open MPI 4's mpirun, if it has a single known address. Rank 0
// checks that it has this address. Inside a Slurm job, Slurm may know the name too (is_slurm_name).
//
// See mpirun(1), Hydra's proxy, docs/guide/engines.md. Tested with Open MPI 4.1 and Hydra 4.0.
#pragma once

#include <optional>

#include "launcher/engines/engine_facts.h"

namespace drun::engines {

// Absent if none of the launcher's variables is set.
std::optional<Facts> open_mpi(const EngineContext& context);
std::optional<Facts> hydra(const EngineContext& context);
std::optional<Facts> pmix(const EngineContext& context);

// Whether an MPI launcher started this process inside a Slurm step. The SLURM_ variables then
// belong to the launcher's daemon.
bool is_started_within_step(const EngineContext& context);

}  // namespace drun::engines
