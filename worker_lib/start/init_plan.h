// core. This rank, the address of the store, and its host: from options and environment variables.
//
// Errors:  Usage, naming the variable or the part of the address, its value and the remedy.
// Thread:  any.
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

// At most one of the two; neither: env://.
struct InitMethod {
  std::optional<Endpoint> store = std::nullopt;         // tcp://host:port
  std::optional<std::string> file_path = std::nullopt;  // file:///path
  // ?rank=R&world_size=N: texts, to be checked like the variables they stand for.
  std::optional<std::string> rank = std::nullopt;
  std::optional<std::string> world_size = std::nullopt;
  bool operator==(const InitMethod&) const = default;
};

Result<InitMethod> parse_init_method(std::string_view method);

// --- The plan

struct InitPlan {
  // master_addr and master_port: the store's, of env:// and tcp://; of file:// and a store of the
  // caller's only where the others are (127.0.0.1 unless MASTER_ADDR says more).
  WorkerIdentity self;
  // This is rank 0, of several, and no agent hosts a store there.
  bool hosts_store = false;
  // Of file://: the store is this file. Empty: it is not a file.
  std::string file_path = "";
  // The source of the rank: "drun or torchrun", "environment", "Open MPI", "Hydra", "Slurm",
  // "InitOptions".
  std::string identity_source = "";
  bool operator==(const InitPlan&) const = default;
};

Result<InitPlan> plan_init(const InitOptions& options, const Lookup& environment,
                           const AncestorLookup& ancestor = {});

}  // namespace drun::worker
