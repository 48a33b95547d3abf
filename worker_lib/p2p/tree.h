// core. A rank's place in the binomial tree over all ranks, rooted at 0: log2(size) levels.
#pragma once

#include <optional>
#include <vector>

namespace drun::worker {

struct TreePlace {
  std::optional<int> parent = std::nullopt;  // of all but rank 0
  std::vector<int> children = {};            // those with the smallest subtrees first
  bool operator==(const TreePlace&) const = default;
};

// Requires 0 <= rank < size.
inline TreePlace place_in_tree(int rank, int size) {
  TreePlace place;
  for (int bit = 1; bit < size; bit *= 2) {
    if ((rank & bit) != 0) {
      place.parent = rank - bit;
      break;
    }
    if (rank + bit < size) place.children.push_back(rank + bit);
  }
  return place;
}

}  // namespace drun::worker
