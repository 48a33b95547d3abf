// core. The schedule of pairs: every node with its two neighbors in the ring of all nodes, so that
// no node has two partners at a time and the number of passes is constant.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "drun/key_store.h"
#include "worker_lib/tools/probe/facts.h"

namespace drun::probe {

struct Pairing {
  int with = 0;
  int edge = 0;           // the same number on both nodes, different for each pair
  bool is_first = false;  // of the two nodes
  bool operator==(const Pairing&) const = default;
};

// The pairings of `node`, in order. None with one node; one with two nodes.
std::vector<Pairing> pairings(int node, int count);

// The nodes that `node` visits: its neighbors and node 0; node 0 visits all.
std::vector<int> visits_of(int node, int count);

// --- Rate at which this node and a neighbor reduce data together, over worker_lib's tcp as in jobs
//
// Blocks: up to 15 s until the neighbor connects, then 1 to 2 s, at most 10 s.

// `network`: the interface to use.
PairRate measure_pair(const Pairing& pairing, const std::shared_ptr<KeyStore>& store,
                      const std::string& network);

}  // namespace drun::probe
