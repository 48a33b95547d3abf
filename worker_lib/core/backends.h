// edge. Connects the backends selected by name.
//
// Thread:  any.
// Errors:  Usage, with the invalid part and the valid names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "drun/backend.h"
#include "rendezvous/base/result.h"

namespace drun::worker {

// The backend for each kind of memory.
struct BackendChoice {
  std::string name = "";  // for host memory; for all memory if `gpu` is empty
  std::string gpu = "";   // for GPU memory; empty: no second backend
  bool operator==(const BackendChoice&) const = default;
};

// Parses "name", or torch's "cpu:name", "cuda:name" or "cpu:name,cuda:name". The names are checked
// when connecting.
Result<BackendChoice> parse_backend(std::string_view text);

// The available names, sorted.
std::vector<std::string> backend_names();

// Throws BackendFailure (Unsupported) if only NCCL is selected and this machine has no NCCL or no
// GPU.
void check_is_here(const BackendChoice& choice);

// Each name is a registered backend, a built-in one, or "within+across": the first for the ranks of
// a node, the second between nodes. Backends for host memory connect now; NCCL beside another
// backend connects with its first operation. Throws BackendFailure (Usage for an unknown name) and
// the errors of connecting.
std::unique_ptr<Backend> connect_chosen(const BackendChoice& choice, const BackendContext& context);

// Whether the ranks need network addresses: the backend connects them over the network.
bool needs_network(const std::string& name, bool is_one_node);

}  // namespace drun::worker
