// core. What the variables of one engine say about this process, whole or in part.
//
// Owner:   values; copy freely.   Thread: any.   Never throws.
// Source:  mpirun(1), the proxies of Hydra (PMI_*, MPI_LOCAL*), srun(1).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/world.h"

namespace drun::worker {

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

}  // namespace drun::worker
