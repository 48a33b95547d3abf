// core. Determines this rank, the address of the store, and the rank that hosts it, from options
// and environment variables.
//
// Errors:  Usage, with the variable or the part of the address, its value and the remedy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "drun/process_group.h"
#include "rendezvous/base/result.h"
#include "rendezvous/net/endpoint.h"
#include "worker_lib/start/identity.h"

namespace drun::worker {

// --- InitOptions::init_method
//
// Errors: Usage, with the whole method, the invalid part and a valid alternative.

// At most one of the two is set; neither for env://.
struct InitMethod {
  std::optional<Endpoint> store = std::nullopt;         // tcp://host:port
  std::optional<std::string> file_path = std::nullopt;  // file:///path
  // ?rank=R&world_size=N: unchecked texts, like the variables that they replace.
  std::optional<std::string> rank = std::nullopt;
  std::optional<std::string> world_size = std::nullopt;
  bool operator==(const InitMethod&) const = default;
};

Result<InitMethod> parse_init_method(std::string_view method);

// --- The plan

struct InitPlan {
  // master_addr and master_port are the store's for env:// and tcp://. For file:// and a store of
  // the caller, they only show where the other ranks are (127.0.0.1 unless MASTER_ADDR is set).
  WorkerIdentity self;
  // True on rank 0 of several if no agent hosts a store there.
  bool hosts_store = false;
  // For file://: the file of the store. Empty otherwise.
  std::string file_path = "";
  bool operator==(const InitPlan&) const = default;
};

Result<InitPlan> plan_init(const InitOptions& options, const Lookup& environment,
                           const AncestorLookup& ancestor = {});

}  // namespace drun::worker
