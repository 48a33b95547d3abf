// core. --local-nodes: a job over --hosts' way of starting agents, on this machine alone. Names and
// addresses of the nodes, their shares of the cores and GPUs, and the options that do not fit.
//
// Shares:  consecutive CPUs and GPUs, as even as can be. With fewer of them than nodes every node
//          has all.
// Owner:   values.   Thread: any.   Errors: Usage.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "launcher/plan/host_plan.h"
#include "launcher/plan/host_pool.h"
#include "rendezvous/base/result.h"

namespace drun::hosts {

// The interface of each node with a network namespace of its own, and the length of the prefix that
// its addresses share.
inline constexpr const char* kNodeInterface = "eth0";
inline constexpr int kNodePrefixBits = 24;

Result<void> check_local_nodes(const Options& options);

// With --nnodes as --local-nodes asks for it.
Options with_local_nodes(Options options);

// node0, node1, ... with slots enough for --np.
Pool local_pool(const Options& options);

// Addresses, CPUs and GPUs of plan.nodes, and ports where they share the loopback interface.
Result<void> settle_local_nodes(HostPlan& plan, const Options& options, const HostFacts& host);

// Of the node with a network of its own: "10.88.0.1".
std::string local_address(std::size_t node);

}  // namespace drun::hosts
