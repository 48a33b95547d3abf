// core. --local-nodes: starts several agents on this machine the way --hosts does on several. Plans
// the nodes' names and addresses and their shares of cores and GPUs, and rejects options that do
// not apply.
//
// Shares are consecutive CPUs and GPUs of equal size (differing by at most one). If there are fewer
// than nodes, every node gets all of them. Errors: Usage.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "launcher/hosts/host_plan.h"
#include "launcher/hosts/host_pool.h"
#include "rendezvous/base/result.h"

namespace drun::hosts {

// The interface of each node that has a network namespace, and the prefix length of the nodes'
// addresses.
inline constexpr const char* kNodeInterface = "eth0";
inline constexpr int kNodePrefixBits = 24;

Result<void> check_local_nodes(const Options& options);

// node0, node1, ... with enough slots for --np.
Pool local_pool(const Options& options);

// Sets addresses, CPUs and GPUs of plan.nodes, and ports if the nodes share the loopback interface.
Result<void> settle_local_nodes(HostPlan& plan, const Options& options, const HostFacts& host);

// The address of a node with a network namespace: "10.88.0.1".
std::string local_address(std::size_t node);

}  // namespace drun::hosts
