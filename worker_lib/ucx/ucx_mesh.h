// edge. A mesh over UCX: InfiniBand, RoCE and the other networks and transports that UCX selects on
// this machine (UCX_TLS, UCX_NET_DEVICES). libucp.so.0 is loaded on first use. Only builds with
// UCX's headers have it; others use without_ucx.cc.
//
// Messages:  UCX's active messages, in UCX's eager and rendezvous protocols. UCX may deliver them
//            out of order; each has a number, by which the receiver restores the order.
// Progress:  as tcp: no thread. A waiting thread polls for a short time, then sleeps in poll().
// Death:     UCX reports some broken connections, depending on the transport. A lookout
//            (BackendContext) additionally has a TCP connection to each rank.
// Stopping:  UCX cannot cancel a message, so that destroying an unfinished one ends the mesh.
// Security:  neither encrypted nor authenticated.
// Errors:    Unsupported if UCX is missing or too old; System with UCX's text.
#pragma once

#include <memory>

#include "drun/backend.h"

namespace drun::worker {

// Whether this library was built with UCX's headers.
bool has_ucx();

// Exchanges UCX's addresses with all ranks over the store, which is not used afterwards. Throws
// BackendFailure, or the store's WorkerError.
std::unique_ptr<Backend> connect_ucx(const BackendContext& context);

}  // namespace drun::worker
