// core. What MPI launchers say to each process: Open MPI's mpirun, Hydra's mpiexec (MPICH, Intel
// MPI, MVAPICH) and others that speak PMI, and PMIx alone. Each process is a node of the job.
//
// Shape:   rank and size are there, a list of nodes is not. Node 0's address is, in this order:
//          MASTER_ADDR; this machine, when all ranks are on it; the first host of the Slurm, PBS or
//          LSF job that the launcher runs in; the machine of Open MPI 4's mpirun, where its one
//          address is known; or nothing. Rank 0 looks whether it is really there. Within a job of
//          Slurm's the name is one that Slurm knows, too (is_slurm_name).
// Source:  mpirun(1), Hydra's proxy; tried with Open MPI 4.1 and Hydra 4.0. docs/guide/engines.md.
// Thread:  any.
#pragma once

#include <optional>

#include "launcher/engines/engine_facts.h"

namespace drun::engines {

// Absent: none of their variables is set.
std::optional<Facts> open_mpi(const Surroundings& around);
std::optional<Facts> hydra(const Surroundings& around);
std::optional<Facts> pmix(const Surroundings& around);

// An MPI launcher started this process within a step of Slurm's, whose variables are then those of
// the launcher's own daemon.
bool is_started_within_step(const Surroundings& around);

}  // namespace drun::engines
