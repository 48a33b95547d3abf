// edge. One rank's way into the world group: finds the store, the other ranks and who is on which
// node, and connects the backend. And a backend for groups made later.
//
// Blocks:  until all ranks have called it, or the timeout.
// Errors:  WorkerError, as init_process_group says.
#pragma once

#include "worker_lib/core/group.h"

namespace drun::worker {

GroupParts join(const InitOptions& options);

}  // namespace drun::worker
