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

// --- One backend made of two: one within each node, and one between the nodes
//
//     large all_reduce:  reduce_scatter in each node -> all_reduce along the rails -> all_gather
//     small all_reduce:  reduce in each node -> all_reduce of the leaders -> broadcast
//
// A rail consists of the ranks with one local rank, and the leaders are the first rail. If all
// nodes have equally many ranks, all rails work at the same time on equal shares; otherwise, and
// for small data, only the leaders. Operations whose parts have to be contiguous for each node need
// nodes with adjacent ranks. Other operations, gather_v, scatter_v and all_to_all_v, use the
// `across` backend of all ranks.
//
// Messages between ranks of one node use the `local` backend, others the `across` backend. A
// receive from any rank waits on both, which share its claim (worker_lib/mesh/matcher.h). If one of
// them cannot share receives, all messages use the `across` backend.
//
// Result:  the same bits on all ranks.
// Errors:  the backends' BackendFailure, with ranks of this group and the part that failed. With
//          is_debug the ranks compare their calls first: Mismatch on every rank.
// Numbers: each backend gets separate sequence numbers, different for each of its collectives, with
//          gaps.
// Store:   each backend has a separate prefix.

// On one node: only `local`. With one rank per node: only `across`. Otherwise each rank connects
// `across` for all ranks, `local` for those of its node if there are others, and `across` for its
// rail.
std::unique_ptr<Backend> connect_by_node(const BackendContext& context, const BackendFactory& local,
                                         const BackendFactory& across);

}  // namespace drun::worker
