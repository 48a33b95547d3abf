// core. Who am I, where is the store, and who hosts it: from options and environment variables.
//
// Errors:  Usage, naming the variable or the part of the address, its value and the remedy.
// Thread:  any.
#pragma once

#include "drun/process_group.h"
#include "rendezvous/world.h"

namespace drun::worker {

struct InitPlan {
  WorkerIdentity self;  // master_addr and master_port: the store's, of any init method
  // Nobody else does: this is rank 0, of several, and no agent hosts a store there.
  bool hosts_store = false;
  bool operator==(const InitPlan&) const = default;
};

Result<InitPlan> plan_init(const InitOptions& options, const Lookup& environment);

}  // namespace drun::worker
