// core. How many workers each host of a pool gets, and which hosts are nodes of the job.
//
// Rules:   a host has as many slots as were given to it, or devices chosen on it, else one.
//          -np N           fills the hosts' slots in order; --map-by=node: one each in turn
//          --nproc-per-node=N, --map-by=ppr:N:node      N on each; with -np until it is reached
//          neither         each host its slots; without slots what the agent there decides
//          More than the slots only with --oversubscribe. Hosts without workers are left out.
//          Ranks are consecutive on a host in every case: worlds are made of nodes.
// Errors:  Usage, naming what was asked for and what there is.   Thread: any.
// Source:  mpirun(1); --rank-by is always slot here.
#pragma once

#include <optional>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/plan/host_pool.h"
#include "rendezvous/base/result.h"

namespace drun::hosts {

struct Wish {
  std::optional<int> np{};
  std::optional<int> per_node{};   // --nproc-per-node=N
  bool has_per_node_word = false;  // --nproc-per-node=gpu: counted by the agent
  MapBy map_by{};
  bool oversubscribe = false;
};

struct Share {
  PoolHost host{};
  std::optional<int> workers{};  // absent: the agent counts
  bool operator==(const Share&) const = default;
};

Result<std::vector<Share>> spread(const Pool& pool, const Wish& wish);

}  // namespace drun::hosts
