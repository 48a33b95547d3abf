// edge. How fast this node and a neighbour reduce data together, over worker_lib's Gloo: as jobs do
// between nodes.
// Thread: any.   Blocks: 15 s for the neighbour to come, then a second or two; 10 s at most.
#pragma once

#include <memory>
#include <string>

#include "drun/key_store.h"
#include "worker_lib/probe/facts.h"
#include "worker_lib/probe/pairs.h"

namespace drun::probe {

// `network`: the interface to use.
PairRate measure_pair(const Pairing& pairing, const std::shared_ptr<KeyStore>& store,
                      const std::string& network);

}  // namespace drun::probe
