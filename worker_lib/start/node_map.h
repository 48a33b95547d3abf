// edge. Where the ranks are. Ranks of one node are those that see the same boot of the same kernel
// and the same network namespace, so that they reach each other over loopback and can hand each
// other memory.
//
// Blocks:  until all ranks have said where they are, or the deadline.
// Errors:  WorkerError of the store; System.
#pragma once

#include <vector>

#include "drun/backend.h"
#include "drun/key_store.h"
#include "worker_lib/start/peer_processes.h"

namespace drun::worker {

struct RankPlace {
  int node = 0;         // numbered from 0 in the order of the nodes' first ranks
  ProcessName process;  // of the ranks on other nodes, too
  bool operator==(const RankPlace&) const = default;
};

// The place of each rank. One request of each rank, and of rank 0 one more for each other rank.
std::vector<RankPlace> map_nodes(KeyStore& store, int rank, int size, Deadline deadline);

}  // namespace drun::worker
