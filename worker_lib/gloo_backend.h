// edge. The backend between processes: Gloo over TCP. gloo_backend.cc is the one source that sees
// Gloo; without_gloo.cc takes its place where it is not built in.
#pragma once

#include <memory>
#include <string>

#include "drun/key_store.h"
#include "worker_lib/backend.h"

namespace drun::worker {

struct Mesh {
  int rank = 0;
  int size = 1;
  std::string address = "";                   // this rank's, numeric
  std::shared_ptr<KeyStore> store = nullptr;  // with a prefix of this group's own
  Deadline deadline{};
};

// Empty: this library was built without Gloo. Otherwise it must be the same on all ranks: builds
// of different Gloo versions do not understand each other.
std::string gloo_build();

// Connects to every other rank. Throws BackendFailure, or the store's WorkerError.
std::unique_ptr<Backend> connect_gloo(const Mesh& mesh);

}  // namespace drun::worker
