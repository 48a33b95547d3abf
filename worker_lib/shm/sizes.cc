#include "worker_lib/shm/sizes.h"

#include <algorithm>
#include <cstring>

namespace drun::worker::shm {
namespace {

Sizes sizes_of(const Call& call, int rank, int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  const auto root = static_cast<std::size_t>(call.root);
  Sizes sizes{.gives = std::vector<std::uint64_t>(count),
              .expects = std::vector<std::uint64_t>(count)};
  const auto copy = [count](const std::size_t* counts, std::vector<std::uint64_t>& to) {
    if (counts != nullptr) std::copy_n(counts, count, to.begin());
  };
  if (call.operation == Operation::Gather) {
    if (rank == call.root) copy(call.counts_out, sizes.expects);
    sizes.gives[root] = call.count;
  } else if (call.operation == Operation::Scatter) {
    if (rank == call.root) copy(call.counts_in, sizes.gives);
    sizes.expects[root] = call.count;
  } else {
    copy(call.counts_in, sizes.gives);
    copy(call.counts_out, sizes.expects);
  }
  return sizes;
}

}  // namespace

bool needs_sizes(const Call& call) {
  return call.is_uneven &&
         (call.operation == Operation::Gather || call.operation == Operation::Scatter ||
          call.operation == Operation::AllToAll);
}

void write_sizes(const Call& call, int rank, int ranks, std::byte* to) {
  const Sizes sizes = sizes_of(call, rank, ranks);
  const std::size_t bytes = sizes.gives.size() * sizeof(std::uint64_t);
  std::memcpy(to, sizes.gives.data(), bytes);
  std::memcpy(to + bytes, sizes.expects.data(), bytes);
}

Sizes read_sizes(const std::byte* from, int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  Sizes sizes{.gives = std::vector<std::uint64_t>(count),
              .expects = std::vector<std::uint64_t>(count)};
  const std::size_t bytes = count * sizeof(std::uint64_t);
  std::memcpy(sizes.gives.data(), from, bytes);
  std::memcpy(sizes.expects.data(), from + bytes, bytes);
  return sizes;
}

std::string difference_between(const std::vector<Sizes>& by_rank) {
  for (std::size_t from = 0; from < by_rank.size(); ++from) {
    for (std::size_t to = 0; to < by_rank.size(); ++to) {
      const std::uint64_t given = by_rank[from].gives[to];
      const std::uint64_t expected = by_rank[to].expects[from];
      if (given == expected) continue;
      return "rank " + std::to_string(from) + " has " + std::to_string(given) +
             " elements for rank " + std::to_string(to) + ", which expects " +
             std::to_string(expected);
    }
  }
  return "";
}

std::uint64_t longest_of(const std::vector<Sizes>& by_rank) {
  std::uint64_t longest = 0;
  for (const Sizes& sizes : by_rank) {
    longest = std::max(longest, *std::max_element(sizes.gives.begin(), sizes.gives.end()));
  }
  return longest;
}

}  // namespace drun::worker::shm
