// core. A node's view of the world of one round, and its conversion to and from environment
// variables, which agents write and workers read.
//
// Ranks:   a node's workers have the ranks base_rank .. base_rank + local_world_size - 1. Ranks
//          follow the order of node ranks, without gaps. A World is O(1) bytes for any number of
//          nodes.
// Source:  torchrun's worker environment; docs/reference/environment.md lists the variables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/result.h"

namespace drun {

// --- Roles, for jobs with several programs
//
// The shares of a node are consecutive local ranks, in order. If the list is empty, all workers
// have the one role that is next to the list (`role`).

// The most shares of one node. With names of 256 bytes, they fit into a Hello.
inline constexpr std::size_t kMostRoleShares = 16;

struct RoleShare {
  std::string role{};
  int workers = 1;
  bool operator==(const RoleShare&) const = default;
};

// A share once the world is complete.
struct RoleRanks {
  std::string role{};
  int workers = 1;
  int base_rank = 0;   // ROLE_RANK of the first of them
  int world_size = 1;  // ROLE_WORLD_SIZE
  bool operator==(const RoleRanks&) const = default;
};

// The share that contains `local_rank`, or null. Sets `before` to the number of the share's workers
// with lower local ranks.
template <typename Share>
const Share* share_at(const std::vector<Share>& shares, int local_rank, int& before) {
  before = local_rank;
  for (const Share& share : shares) {
    if (before < share.workers) return &share;
    before -= share.workers;
  }
  return nullptr;
}

// Whether the shares together contain all of the node's workers.
template <typename Share>
bool is_whole(const std::vector<Share>& shares, int workers) {
  for (const Share& share : shares) {
    if (share.workers < 1 || share.workers > workers) return false;
    workers -= share.workers;
  }
  return workers == 0 || shares.empty();
}

// --- World

struct World {
  std::string run_id;
  int round = 0;     // worlds before this one: DRUN_ROUND
  int restarts = 0;  // number of those that failed: TORCHELASTIC_RESTART_COUNT
  int max_restarts = 0;
  int node_rank = 0;  // GROUP_RANK
  int node_count = 1;
  int base_rank = 0;  // rank of this node's local rank 0
  int local_world_size = 1;
  int world_size = 1;
  std::string role = "default";
  int role_base_rank = 0;  // rank among the role's workers of this node's local rank 0
  int role_world_size = 1;
  std::vector<RoleRanks> roles{};  // several programs: instead of the three above
  std::string master_addr;
  std::uint16_t master_port = 0;
  bool use_agent_store = true;
  bool is_preflight = false;  // runs probes that check the machines, not the program
  bool operator==(const World&) const = default;
};

using EnvironmentEntry = std::pair<std::string, std::string>;

// The role of one worker.
struct WorkerRole {
  std::string name{};
  int rank = 0;        // ROLE_RANK
  int world_size = 1;  // ROLE_WORLD_SIZE
  bool operator==(const WorkerRole&) const = default;
};
// Requires 0 <= local_rank < local_world_size.
WorkerRole role_of(const World& world, int local_rank);

// RANK, LOCAL_RANK, WORLD_SIZE, ... TORCHELASTIC_USE_AGENT_STORE of one worker.
// agent/workers/worker_command.h adds the error file, OMP and NCCL variables. Requires
// 0 <= local_rank < local_world_size.
std::vector<EnvironmentEntry> to_environment(const World& world, int local_rank);

// A worker's identity.
struct WorkerIdentity {
  World world;  // fields that the environment does not contain have their defaults
  int rank = 0;
  int local_rank = 0;
  bool operator==(const WorkerIdentity&) const = default;
};

using Lookup = std::function<std::optional<std::string>(std::string_view name)>;

// "" if it is not set.
inline std::string text_of(const Lookup& lookup, std::string_view name) {
  return lookup(name).value_or("");
}

// RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are required (as for torch's env://); all others
// have the defaults of a program started by hand: LOCAL_RANK = RANK, LOCAL_WORLD_SIZE = WORLD_SIZE,
// one node, no agent store. Errors: Usage, naming the variable, its value and what it should be.
Result<WorkerIdentity> from_environment(const Lookup& lookup);

}  // namespace drun
