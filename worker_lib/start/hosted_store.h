// edge. A store in this process, which rank 0 serves in jobs whose launcher hosts none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace drun::worker {

// Listens on all addresses of this host, or only on loopback if `master_addr` is a loopback
// address, until the last copy of the result is destroyed. Runs one thread. Throws WorkerError
// (Store) if it cannot listen.
std::shared_ptr<void> host_store(const std::string& master_addr, std::uint16_t port);

struct OpenStore {
  std::shared_ptr<void> owner;
  std::uint16_t port = 0;
};

// The same on 127.0.0.1, at a free port.
OpenStore host_store_on_any_port();

}  // namespace drun::worker
