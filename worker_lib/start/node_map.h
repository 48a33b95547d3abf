// edge. Which ranks are on one node: those that see the same boot of the same kernel and the same
// network namespace, so that they reach each other over loopback and can hand each other memory.
//
// Blocks:  until all ranks have said where they are, or the deadline.
// Errors:  WorkerError of the store; System.
#pragma once

#include <vector>

#include "drun/backend.h"
#include "drun/key_store.h"

namespace drun::worker {

// The node of each rank; nodes are numbered from 0 in the order of their first ranks. One request
// of each rank, and of rank 0 one more for each other rank.
std::vector<int> map_nodes(KeyStore& store, int rank, int size, Deadline deadline);

}  // namespace drun::worker
