// edge. The backend between processes: Gloo over TCP. gloo_backend.cc is the one source that sees
// Gloo; without_gloo.cc takes its place where it is not built in.
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
