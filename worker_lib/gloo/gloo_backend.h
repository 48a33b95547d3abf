// edge. The backend between processes and nodes: all collectives, over Gloo's TCP, and messages,
// over the mesh of the backend tcp. Only in builds with Gloo; others use without_gloo.cc. Only
// gloo_backend.cc includes Gloo.
//
// Gloo identifies every call by a hash of its arguments. Calls that differ between ranks are
// therefore never matched: they time out, or with DRUN_DEBUG=1 fail at once with Mismatch on every
// rank.
//
// Deadlines: the group calls abort() at them. Gloo's own timeouts are a second later, because they
// close all connections before the cause can be published.
#pragma once

#include <memory>
#include <string>

#include "drun/backend.h"

namespace drun::worker {

// The version of Gloo; empty if this library was built without it. Must be the same on all ranks,
// because different versions are incompatible.
std::string gloo_build();

// Connects to every other rank. Throws BackendFailure, or the store's WorkerError.
std::unique_ptr<Backend> connect_gloo(const BackendContext& context);

}  // namespace drun::worker
