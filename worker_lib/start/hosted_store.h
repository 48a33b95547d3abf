// edge. A store inside this process, for jobs whose launcher hosts none: rank 0 serves it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace drun::worker {

// Listens on every address of this host, or on loopback only if `master_addr` says loopback, until
// the last copy of the result is gone. Runs one thread.
// Throws WorkerError (Store) if it cannot listen.
std::shared_ptr<void> host_store(const std::string& master_addr, std::uint16_t port);

struct OpenStore {
  std::shared_ptr<void> owner;
  std::uint16_t port = 0;
};

// The same on 127.0.0.1, on a port that is free.
OpenStore host_store_on_any_port();

}  // namespace drun::worker
