// core. Groups over several nodes: a backend made of two others, one within each node and one
// between the nodes.
//
//     large all_reduce:  reduce_scatter in each node -> all_reduce along the rails -> all_gather
//     small all_reduce:  reduce in each node -> all_reduce of the leaders -> broadcast
//
// In a large all_reduce these steps overlap for parts of the data, if each rank of a node has two
// cores: with fewer, the second thread of each rank made it up to 16 % slower.
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
#pragma once

#include <memory>
#include <optional>

#include "drun/backend.h"

namespace drun::worker {

// On one node: only `local`. With one rank per node: only `across`. Otherwise each rank connects
// `across` for all ranks, `local` for those of its node if there are others, and `across` for its
// rail. `overlaps`: whether the steps of large operations overlap; absent: if there are enough
// cores.
std::unique_ptr<Backend> connect_by_node(const BackendContext& context, const BackendFactory& local,
                                         const BackendFactory& across,
                                         std::optional<bool> overlaps = std::nullopt);

}  // namespace drun::worker
