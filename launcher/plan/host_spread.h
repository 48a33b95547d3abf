// core. The number of workers on each host of a pool, and which hosts are nodes of the job.
//
//          A host has as many slots as its entry specifies, or as devices selected on it, else one.
//          -np N           fills the hosts' slots in order; --map-by=node: one each in turn
//          --nproc-per-node=N, --map-by=ppr:N:node      N on each host, up to -np in total
//          neither         each host its slots; without slots, the number that its agent determines
//          More workers than slots require --oversubscribe. Hosts without workers are left out.
//          Ranks on a host are always consecutive, because worlds consist of nodes (mpirun's
//          --rank-by=slot).
// Errors:  Usage, with the requested and the available number. See mpirun(1).
#pragma once

#include <optional>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/plan/host_pool.h"
#include "rendezvous/base/result.h"

namespace drun::hosts {

struct SpreadRequest {
  std::optional<int> np{};
  std::optional<int> per_node{};   // --nproc-per-node=N
  bool has_per_node_word = false;  // --nproc-per-node=gpu: the agent counts
  MapBy map_by{};
  bool oversubscribe = false;
};

struct Share {
  PoolHost host{};
  std::optional<int> workers{};  // absent: the agent counts
  bool operator==(const Share&) const = default;
};

Result<std::vector<Share>> spread(const Pool& pool, const SpreadRequest& wish);

}  // namespace drun::hosts
