// core. Exchange of sizes before a collective of which no rank knows all sizes.
//
// The bytes come from another process. They are only compared as numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "drun/backend.h"

namespace drun::worker::shm {

// gather_v, scatter_v, all_to_all_v.
bool needs_sizes(const Call& call);

// Elements given to and expected from each rank.
struct Sizes {
  std::vector<std::uint64_t> gives;
  std::vector<std::uint64_t> expects;
};

// Uses 16 bytes per rank.
void write_sizes(const Call& call, int rank, int ranks, std::byte* to);
Sizes read_sizes(const std::byte* from, int ranks);

// "rank 1 has 5 elements for rank 0, which expects 4"; empty: all sizes match. `by_rank`: in rank
// order.
std::string difference_between(const std::vector<Sizes>& by_rank);
std::uint64_t longest_of(const std::vector<Sizes>& by_rank);

}  // namespace drun::worker::shm
