// core. Determines this rank, the address of the store, and the rank that hosts it, from options
// and environment variables.
//
// Errors:  Usage, with the variable or the part of the address, its value and the remedy.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "drun/process_group.h"
#include "rendezvous/base/result.h"
#include "rendezvous/job/world.h"
#include "rendezvous/net/endpoint.h"

namespace drun::worker {

// --- The rank of this process and the number of ranks, from the variables of exactly one launcher
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

// The entry of node `at` in a list like "2(x3),1". Absent if the list is invalid or too short.
std::optional<int> entry_of_counts(std::string_view list, int at);

// The process id of the nearest ancestor that runs this program; absent: none. Nothing else
// distinguishes two jobs of Hydra.
using AncestorLookup = std::function<std::optional<int>(std::string_view program)>;

Result<WorkerIdentity> identify(const Lookup& environment, const AncestorLookup& ancestor);

// --- InitOptions::init_method
//
// Errors: Usage, with the whole method, the invalid part and a valid alternative.

// At most one of the two is set; neither for env://.
struct InitMethod {
  std::optional<Endpoint> store = std::nullopt;         // tcp://host:port
  std::optional<std::string> file_path = std::nullopt;  // file:///path
  // ?rank=R&world_size=N: unchecked texts, like the variables that they replace.
  std::optional<std::string> rank = std::nullopt;
  std::optional<std::string> world_size = std::nullopt;
  bool operator==(const InitMethod&) const = default;
};

Result<InitMethod> parse_init_method(std::string_view method);

// --- The plan

struct InitPlan {
  // master_addr and master_port are the store's for env:// and tcp://. For file:// and a store of
  // the caller, they only show where the other ranks are (127.0.0.1 unless MASTER_ADDR is set).
  WorkerIdentity self;
  // True on rank 0 of several if no agent hosts a store there.
  bool hosts_store = false;
  // For file://: the file of the store. Empty otherwise.
  std::string file_path = "";
  bool operator==(const InitPlan&) const = default;
};

Result<InitPlan> plan_init(const InitOptions& options, const Lookup& environment,
                           const AncestorLookup& ancestor = {});

}  // namespace drun::worker
