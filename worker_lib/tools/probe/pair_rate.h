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

// Whom `node` visits: its neighbors and node 0; node 0 visits all.
std::vector<int> visits_of(int node, int count);

// --- Rate at which this node and a neighbor reduce data together, over worker_lib's Gloo as in
// jobs
//
// Blocks: up to 15 s until the neighbor connects, then 1 to 2 s, at most 10 s.

// `network`: the interface to use.
PairRate measure_pair(const Pairing& pairing, const std::shared_ptr<KeyStore>& store,
                      const std::string& network);

}  // namespace drun::probe
