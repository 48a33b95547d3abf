// core. Roles of one node's workers when they have several: several programs in one job.
//
// Shape:   shares are consecutive local ranks, in order. A list that is empty stands for one role,
//          that of all workers (`role` beside it).
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace drun {

// Of one node: with names of 256 bytes they fit into a Hello.
inline constexpr std::size_t kMostRoleShares = 16;

struct RoleShare {
  std::string role{};
  int workers = 1;
  bool operator==(const RoleShare&) const = default;
};

// The same once the world is complete.
struct RoleRanks {
  std::string role{};
  int workers = 1;
  int base_rank = 0;   // ROLE_RANK of the first of them
  int world_size = 1;  // ROLE_WORLD_SIZE
  bool operator==(const RoleRanks&) const = default;
};

// The share that `local_rank` is in, and how many of its workers stand before it; null: there is
// none.
template <typename Share>
const Share* share_at(const std::vector<Share>& shares, int local_rank, int& before) {
  before = local_rank;
  for (const Share& share : shares) {
    if (before < share.workers) return &share;
    before -= share.workers;
  }
  return nullptr;
}

// Whether they are together all of the node's workers.
template <typename Share>
bool is_whole(const std::vector<Share>& shares, int workers) {
  for (const Share& share : shares) {
    if (share.workers < 1 || share.workers > workers) return false;
    workers -= share.workers;
  }
  return workers == 0 || shares.empty();
}

}  // namespace drun
