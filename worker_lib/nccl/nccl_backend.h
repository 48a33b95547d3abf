// edge. The backend for GPUs: collectives and messages over NCCL, which is loaded at run time.
//
// GPU:     one per rank: InitOptions::device, or the GPU of its first operation's memory, or, if
//          connected at once, the GPU whose number is its local rank.
// Streams: operations run on a stream of the backend, after the work that the caller's stream had
//          at the time of the call. When run or finish has returned, they are done, and the memory
//          can be used on any stream. A stream that is being captured into a graph is rejected.
// Threads: the caller's start operations (StartQueue); only a message of two ranks that are not
//          connected needs another one.
// Sharing: ranks of one node that use one GPU are rejected before they connect, unless the
//          environment lets NCCL accept it.
// Death:   NCCL itself detects few deaths. The group reports lost ranks if the kernel or another of
//          its backends detects their end: on this node always, on others with tcp, for example. An
//          operation that is not done 30 ms later fails.
// Calls:   with is_debug, the ranks compare their calls first; otherwise, calls that differ time
//          out.
#pragma once

#include <memory>

#include "drun/backend.h"

namespace drun::worker {

// Connects to every other rank; with `connects_later`, at the first collective. Throws
// BackendFailure, or the store's WorkerError.
std::unique_ptr<Backend> connect_nccl(const BackendContext& context);

// Throws Unsupported if there is no NCCL or no GPU here.
void check_nccl_is_here();

}  // namespace drun::worker
