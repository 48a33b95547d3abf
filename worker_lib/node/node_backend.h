// core. Two backends as one: what goes fast within a node does so, and between nodes only one rank
// of each, its leader (the lowest), takes part.
//
//     all_reduce:   reduced in each node -> over the leaders -> shared in each node
//
// In the nodes first: barrier, broadcast, all_reduce, reduce, and all_gather where the ranks of
// each node are neighbours. The other collectives and all messages (a message from anybody may
// come from any node) go through an `across` backend of all ranks.
//
// Result:  the same bits on all ranks.
// Errors:  the backends' BackendFailure, with ranks of this group and the part of it that failed.
//          With is_debug the ranks compare their calls first: Mismatch on every rank.
// Sequence: a backend is given numbers of its own, different for each collective it does, but with
//          gaps.
// Store:   each backend has a prefix of its own.
#pragma once

#include <memory>

#include "drun/backend.h"

namespace drun::worker {

// On one node: just `local`. With one rank on each: just `across`. Otherwise each rank connects
// `across` all ranks, `local` to those of its node if there are others, and `across` the leaders if
// it is one.
std::unique_ptr<Backend> connect_by_node(const BackendContext& context, const BackendFactory& local,
                                         const BackendFactory& across);

}  // namespace drun::worker
