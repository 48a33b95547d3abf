// edge. The backend between processes and nodes: every collective and messages, over Gloo's TCP.
// Only in builds with Gloo; without_gloo.cc takes its place elsewhere.
//
// Calls that differ never meet, as each is known to Gloo by a hash of what it is: they end at their
// deadlines, or with DRUN_DEBUG=1 at once with a Mismatch on every rank.
//
// Deadlines: the group calls abort() at them. Gloo's own are a second later and close all
// connections before the cause can be published.
#pragma once

#include <memory>
#include <string>

#include "drun/backend.h"

namespace drun::worker {

// Empty: this library was built without Gloo. Otherwise it must be the same on all ranks: builds
// of different Gloo versions do not understand each other.
std::string gloo_build();

// Connects to every other rank. Throws BackendFailure, or the store's WorkerError.
std::unique_ptr<Backend> connect_gloo(const BackendContext& context);

}  // namespace drun::worker
