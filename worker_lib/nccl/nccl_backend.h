// edge. The backend between GPUs: collectives and messages over NCCL, which is loaded at run time.
//
// GPU:     one for each rank: of the memory that its first operation is given, or, connected at
//          once, the one that this rank has on its node by its local rank.
// Streams: operations go onto a stream of the backend's, after what the caller's stream has been
//          given until the call. They are done, and memory may be used on any stream, when run or
//          finish has returned.
// Death:   NCCL itself notices little. The group reports lost ranks if another of its backends
//          detects their end, as shm does on this node and gloo on all. An operation that is not
//          done 30 ms later has failed.
// Calls that differ: with is_debug they are compared first, without they end at their deadlines.
#pragma once

#include <memory>

#include "drun/backend.h"

namespace drun::worker {

// Connects to every other rank; with `connects_later` at the first collective only. Throws
// BackendFailure, or the store's WorkerError.
std::unique_ptr<Backend> connect_nccl(const BackendContext& context);

// Throws Unsupported if there is no NCCL or no GPU here.
void check_nccl_is_here();

}  // namespace drun::worker
