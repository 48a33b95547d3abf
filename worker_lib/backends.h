// core, but for the registry. Which backend serves which memory: from "cpu:shm+gloo,cuda:nccl" and
// what is there.
//
// Thread:  any.
// Errors:  Usage, naming the part that makes no sense and what there is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "drun/backend.h"
#include "rendezvous/result.h"

namespace drun::worker {

struct BackendNames {
  std::string cpu = "shm+gloo";
  std::string cuda = "nccl";
  bool operator==(const BackendNames&) const = default;
};

// "name" (for both), or "cpu:name,cuda:name". Names are checked by connect_named.
Result<BackendNames> parse_backends(std::string_view text);

// Those that can be asked for, in order.
std::vector<std::string> backend_names();

// A registered backend, one of ours, or "within+across": a node's ranks by the first, nodes by the
// second. Throws BackendFailure (Usage: there is none of that name) and what connecting throws.
std::unique_ptr<Backend> connect_named(const std::string& name, const BackendContext& context);

// Whether ranks of these nodes will talk over the network with it, so that their addresses matter.
bool needs_network(const std::string& name, bool is_one_node);

}  // namespace drun::worker
