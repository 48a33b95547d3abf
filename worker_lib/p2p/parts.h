// core. Where each rank's part lies in a buffer that has them all, in rank order.
// Owner:   a value.   Thread: any.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace drun::worker {

class Parts {
 public:
  // `counts`: of each rank, or null: everybody has `count` elements.
  Parts(const std::size_t* counts, std::size_t count, std::size_t element_bytes, int size) {
    offsets_.push_back(0);
    for (int rank = 0; rank < size; ++rank) {
      offsets_.push_back(offsets_.back() + (counts ? counts[rank] : count) * element_bytes);
    }
  }
  // `count` elements, shared out as evenly as it goes.
  static Parts shares(std::size_t count, std::size_t element_bytes, int size) {
    const auto ranks = static_cast<std::size_t>(size);
    std::vector<std::size_t> counts(ranks, count / ranks);
    for (std::size_t i = 0; i < count % ranks; ++i) ++counts[i];
    return Parts(counts.data(), 0, element_bytes, size);
  }

  std::size_t offset(int rank) const { return offsets_[static_cast<std::size_t>(rank)]; }
  std::size_t size_bytes(int rank) const { return offset(rank + 1) - offset(rank); }
  std::size_t total_bytes() const { return offsets_.back(); }
  std::size_t largest_bytes() const {
    std::size_t largest = 0;
    for (std::size_t i = 1; i < offsets_.size(); ++i) {
      largest = std::max(largest, offsets_[i] - offsets_[i - 1]);
    }
    return largest;
  }

 private:
  std::vector<std::size_t> offsets_;
};

}  // namespace drun::worker
