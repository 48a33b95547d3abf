// edge. Joins the world group: finds the store, the other ranks and their nodes, and connects the
// backend.
//
// Blocks:  until all ranks have called it, or the timeout.
// Errors:  WorkerError, as described at init_process_group.
#pragma once

#include "worker_lib/core/group.h"

namespace drun::worker {

GroupParts join(const InitOptions& options);

}  // namespace drun::worker
