// core. Groups over several nodes: the ranks of each node, and a backend made of two others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "drun/backend.h"

namespace drun::worker {

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
  std::vector<int> leaders() const {
    std::vector<int> all;
    for (const std::vector<int>& ranks : ranks_of_) all.push_back(ranks.front());
    return all;
  }
  // Whether the ranks of each node are consecutive.
  bool is_contiguous() const { return std::is_sorted(node_of_.begin(), node_of_.end()); }

 private:
  std::vector<int> node_of_;
  std::vector<int> local_rank_of_;
  std::vector<std::vector<int>> ranks_of_;
};

// --- One backend made of two: one within each node, and one between the nodes' leaders
//
//     all_reduce:   reduced in each node -> over the leaders -> shared in each node
//
// A node's leader is its lowest rank. These operations run within the nodes first: barrier,
// broadcast, all_reduce, reduce, and all_gather if the ranks of each node are adjacent. All other
// collectives, and all messages (a message can come from any node), use the `across` backend of all
// ranks.
//
// Result:  the same bits on all ranks.
// Errors:  the backends' BackendFailure, with ranks of this group and the part that failed. With
//          is_debug the ranks compare their calls first: Mismatch on every rank.
// Numbers: each backend gets separate sequence numbers, different for each of its collectives, with
//          gaps.
// Store:   each backend has a separate prefix.

// On one node: only `local`. With one rank per node: only `across`. Otherwise each rank connects
// `across` for all ranks, `local` for those of its node if there are others, and `across` for the
// leaders if it is one.
std::unique_ptr<Backend> connect_by_node(const BackendContext& context, const BackendFactory& local,
                                         const BackendFactory& across);

}  // namespace drun::worker
