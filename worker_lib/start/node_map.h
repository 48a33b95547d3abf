// edge. Maps ranks to nodes. Ranks are on one node if they see the same boot of the same kernel and
// the same network namespace, so that they can connect over loopback and pass memory to each other.
//
// Blocks:  until all ranks have published their place, or the deadline.
// Errors:  as gather_texts.
#pragma once

#include <memory>
#include <vector>

#include "drun/backend.h"
#include "drun/key_store.h"
#include "worker_lib/start/processes.h"

namespace drun::worker {

struct RankPlace {
  int node = 0;         // numbered from 0 in the order of the nodes' first ranks
  ProcessName process;  // also for ranks on other nodes
  bool operator==(const RankPlace&) const = default;
};

// The place of each rank. Each rank sends one request; rank 0 sends one more per other rank.
std::vector<RankPlace> map_nodes(const std::shared_ptr<KeyStore>& store, int rank, int size,
                                 Deadline deadline);

}  // namespace drun::worker
