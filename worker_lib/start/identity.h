// core. Determines the rank of this process and the number of ranks, from the variables of exactly
// one launcher.
//
//   1. RANK, WORLD_SIZE, ... of drun, torchrun or a person, if one of these two is set: an agent
//      may itself have been started by an engine.
//   2. Those of Open MPI, Hydra (MPICH, Intel MPI) and Slurm (within a step), in this order: if two
//      are nested, mpirun is the inner one, and srun has started its daemons.
//
// A set must be complete, or be a part of an outer complete one: `srun --mpi=pmix` and `--mpi=pmi2`
// set a rank in separate variables and the rest in Slurm's. An incomplete set is an error, and so
// are two MPI launchers that contradict each other.
//
// Store:   engines set no master. MASTER_ADDR and MASTER_PORT are used if they are set. Otherwise,
//          if all ranks are on one node, the address is 127.0.0.1; and the port is derived from the
//          engine's job name (derived_port in rendezvous/net/endpoint.h).
// Errors:  Usage, with the variables, their values and the remedy. Never throws.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/job/world.h"

namespace drun::worker {

// The entry of node `at` in a list like "2(x3),1". Absent if the list is invalid or too short.
std::optional<int> entry_of_counts(std::string_view list, int at);

// The process id of the nearest ancestor that runs this program; absent: none. Nothing else
// distinguishes two jobs of Hydra.
using AncestorLookup = std::function<std::optional<int>(std::string_view program)>;

Result<WorkerIdentity> identify(const Lookup& environment, const AncestorLookup& ancestor);

}  // namespace drun::worker
