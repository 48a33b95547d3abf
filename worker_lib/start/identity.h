// core. Which rank this process is, of how many: from one launcher's variables, never from two.
//
//   1. RANK, WORLD_SIZE, ... of drun, torchrun or a person, as soon as one of these two is set: an
//      agent may itself have been started by an engine.
//   2. Open MPI's, Hydra's (MPICH, Intel MPI), Slurm's (within a step), in this order: of two that
//      are nested mpirun is the inner one, and srun started its daemons.
//
// A set that is begun must be whole, or be a part of an outer one that is: `srun --mpi=pmix` and
// `--mpi=pmi2` set a rank in separate variables and the rest in Slurm's. Two MPI launchers that
// contradict each other are an error; so is an incomplete set.
//
// Store:   engines name no master. MASTER_ADDR and MASTER_PORT count where they are set. Otherwise,
//          with all ranks on one node, it is 127.0.0.1; and a port follows from the engine's name
//          of the job, in kFirstDerivedPort and kDerivedPorts, above the ports that Linux gives
//          away by itself (32768 to 60999).
// Owner:   values; copy freely.   Thread: any.
// Errors:  Usage, naming the variables, their values and the remedy. Never throws.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/job/world.h"

namespace drun::worker {

// --- The identity according to one engine's variables, complete or in part
//
// Source: mpirun(1), the proxies of Hydra (PMI_*, MPI_LOCAL*), srun(1).

struct Numbers {
  std::optional<int> rank = std::nullopt;
  std::optional<int> size = std::nullopt;
  std::optional<int> local_rank = std::nullopt;
  std::optional<int> local_size = std::nullopt;
  bool operator==(const Numbers&) const = default;
};

struct EngineReport {
  std::string_view engine;  // "Open MPI"
  bool is_mpi = true;       // a launcher that others start, not one that starts them
  Numbers told = {};
  std::string missing = "";  // "PMI_SIZE, MPI_LOCALRANKID"; empty: nothing
  std::string wrong = "";    // the first variable that makes no sense, as a sentence
  // The engine's name for this job, the same on all nodes; empty: it has none.
  std::string job = "";
  int node_rank = 0;
  int node_count = 1;

  bool is_whole() const { return missing.empty() && wrong.empty(); }
};

// Those that say anything, from the innermost outwards.
std::vector<EngineReport> read_engines(const Lookup& environment);

// Slurm started a job here, but not this process: a batch script's own, or an allocation's shell.
bool is_outside_slurm_step(const Lookup& environment);

// The entry of node `at` in a list like "2(x3),1". Absent: no such list, or no such entry.
std::optional<int> entry_of_counts(std::string_view list, int at);

// --- The identity of this process

constexpr std::uint16_t kFirstDerivedPort = 61440;
constexpr std::uint16_t kDerivedPorts = 4096;

struct Identity {
  WorkerIdentity self;
  // The source: "drun or torchrun", "environment", "Open MPI", "Hydra", "Slurm".
  std::string source = "";
  bool is_on_one_node = true;  // all ranks, as far as the source tells
  bool operator==(const Identity&) const = default;
};

// The process id of the nearest ancestor that runs this program: all that tells one job of Hydra's
// from another. Absent: none does.
using AncestorLookup = std::function<std::optional<int>(std::string_view program)>;

Result<Identity> identify(const Lookup& environment, const AncestorLookup& ancestor);

}  // namespace drun::worker
