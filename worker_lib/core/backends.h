// core, but for the registry. From a backend's name to the backend.
//
// Thread:  any.
// Errors:  Usage, naming the part that makes no sense and what there is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "drun/backend.h"
#include "rendezvous/base/result.h"

namespace drun::worker {

// The backend for each kind of memory.
struct BackendChoice {
  std::string name = "";  // of the host's; or of all there is, if `gpu` is empty
  std::string gpu = "";   // of GPUs'; empty: no second backend
  bool operator==(const BackendChoice&) const = default;
};

// "name", torch's "cpu:name", "cuda:name" or "cpu:name,cuda:name". The names themselves are checked
// when connecting.
Result<BackendChoice> parse_backend(std::string_view text);

// Those that can be asked for, in order.
std::vector<std::string> backend_names();

// Throws BackendFailure (Unsupported) if what cannot be done without is not on this machine: NCCL
// and a GPU, where nothing else is asked for.
void check_is_here(const BackendChoice& choice);

// Each name is a registered backend, a built-in one, or "within+across": a node's ranks by the
// first, nodes by the second. Those of the host's memory are connected; NCCL beside them connects
// with its first operation. Throws BackendFailure (Usage: there is none of that name) and what
// connecting throws.
std::unique_ptr<Backend> connect_chosen(const BackendChoice& choice, const BackendContext& context);

// Whether ranks of these nodes will talk over the network with it, so that their addresses matter.
bool needs_network(const std::string& name, bool is_one_node);

}  // namespace drun::worker
