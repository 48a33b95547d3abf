// core. Which ranks of a group are on which node.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace drun::worker {

// The nodes of some ranks of a group, numbered from 0 in the order of these ranks. `node_of`: the
// node of each rank of the group.
inline std::vector<int> nodes_among(const std::vector<int>& node_of,
                                    const std::vector<int>& ranks) {
  std::vector<int> met;  // the group's node numbers
  std::vector<int> numbers;
  for (const int rank : ranks) {
    const int node = node_of[static_cast<std::size_t>(rank)];
    auto known = std::find(met.begin(), met.end(), node);
    if (known == met.end()) known = met.insert(met.end(), node);
    numbers.push_back(static_cast<int>(known - met.begin()));
  }
  return numbers;
}

// BackendContext::ended_rank of these ranks, numbered from 0. `ended`: of the group.
inline auto ended_among(std::function<std::optional<int>(const std::vector<int>&)> ended,
                        std::vector<int> ranks) {
  return [ended = std::move(ended),
          ranks = std::move(ranks)](const std::vector<int>& asked) -> std::optional<int> {
    for (const int rank : asked)
      if (ended({ranks[static_cast<std::size_t>(rank)]})) return rank;
    return std::nullopt;
  };
}

class NodeLayout {
 public:
  // `node_of`: the node of each rank. Nodes are numbered from 0, in the order of their first ranks.
  explicit NodeLayout(std::vector<int> node_of) : node_of_(std::move(node_of)) {
    const int last = node_of_.empty() ? -1 : *std::max_element(node_of_.begin(), node_of_.end());
    ranks_of_.resize(static_cast<std::size_t>(last + 1));
    for (std::size_t rank = 0; rank < node_of_.size(); ++rank) {
      std::vector<int>& ranks = ranks_of_[static_cast<std::size_t>(node_of_[rank])];
      local_rank_of_.push_back(static_cast<int>(ranks.size()));
      ranks.push_back(static_cast<int>(rank));
    }
  }

  int nodes() const { return static_cast<int>(ranks_of_.size()); }
  int size() const { return static_cast<int>(node_of_.size()); }
  int node_of(int rank) const { return node_of_[static_cast<std::size_t>(rank)]; }
  int local_rank_of(int rank) const { return local_rank_of_[static_cast<std::size_t>(rank)]; }
  // Ascending; the first one leads.
  const std::vector<int>& ranks_of(int node) const {
    return ranks_of_[static_cast<std::size_t>(node)];
  }
  // The ranks with that local rank, by node. Requires that every node has one.
  std::vector<int> rail(int local_rank) const {
    std::vector<int> all;
    for (const std::vector<int>& ranks : ranks_of_)
      all.push_back(ranks[static_cast<std::size_t>(local_rank)]);
    return all;
  }
  // Whether all nodes have the same number of ranks.
  bool is_uniform() const {
    return std::all_of(ranks_of_.begin(), ranks_of_.end(), [&](const std::vector<int>& ranks) {
      return ranks.size() == ranks_of_.front().size();
    });
  }
  // Whether the ranks of each node are consecutive.
  bool is_contiguous() const { return std::is_sorted(node_of_.begin(), node_of_.end()); }

 private:
  std::vector<int> node_of_;
  std::vector<int> local_rank_of_;
  std::vector<std::vector<int>> ranks_of_;
};

}  // namespace drun::worker
