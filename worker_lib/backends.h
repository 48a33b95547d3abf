// core, but for the registry. From a backend's name to the backend.
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

// "name" or torch's "cpu:name"; what connect_named takes. The name itself is checked there.
Result<std::string> parse_backend(std::string_view text);

// Those that can be asked for, in order.
std::vector<std::string> backend_names();

// A registered backend, one of ours, or "within+across": a node's ranks by the first, nodes by the
// second. Throws BackendFailure (Usage: there is none of that name) and what connecting throws.
std::unique_ptr<Backend> connect_named(const std::string& name, const BackendContext& context);

// Whether ranks of these nodes will talk over the network with it, so that their addresses matter.
bool needs_network(const std::string& name, bool is_one_node);

}  // namespace drun::worker
