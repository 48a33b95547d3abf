// core. What ranks tell each other before a collective whose sizes none of them knows all of.
//
// Bytes:   of another process; nothing is taken from them but numbers that are compared.
// Owner:   values.   Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "drun/backend.h"

namespace drun::worker::shm {

// gather_v, scatter_v, all_to_all_v.
bool needs_sizes(const Call& call);

// In elements, to and from each rank.
struct Sizes {
  std::vector<std::uint64_t> gives;
  std::vector<std::uint64_t> expects;
};

// 16 bytes a rank.
void write_sizes(const Call& call, int rank, int ranks, std::byte* to);
Sizes read_sizes(const std::byte* from, int ranks);

// "rank 1 has 5 elements for rank 0, which expects 4"; empty: all fit together. In rank order.
std::string difference_between(const std::vector<Sizes>& by_rank);
std::uint64_t longest_of(const std::vector<Sizes>& by_rank);

}  // namespace drun::worker::shm
