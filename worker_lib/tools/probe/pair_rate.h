// core. The schedule of pairs: every node with its two neighbors in the ring of all nodes,
// so that no node has two partners at a time and the number of passes does not grow.
// Thread: any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "drun/key_store.h"
#include "worker_lib/tools/probe/facts.h"

namespace drun::probe {

struct Pairing {
  int with = 0;
  int edge = 0;           // the same number at both ends, no other pair's
  bool is_first = false;  // of the two
  bool operator==(const Pairing&) const = default;
};

// Of `node`, in order. None where it is alone; one of two nodes.
std::vector<Pairing> pairings(int node, int count);

// Whom `node` visits: its neighbours and node 0; node 0 visits all.
std::vector<int> visits_of(int node, int count);

}  // namespace drun::probe

// edge. How fast this node and a neighbour reduce data together, over worker_lib's Gloo: as jobs do
// between nodes.
// Thread: any.   Blocks: 15 s for the neighbour to come, then a second or two; 10 s at most.

namespace drun::probe {

// `network`: the interface to use.
PairRate measure_pair(const Pairing& pairing, const std::shared_ptr<KeyStore>& store,
                      const std::string& network);

}  // namespace drun::probe
