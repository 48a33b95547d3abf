// edge. A store in this process, which rank 0 serves in jobs whose launcher hosts none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace drun::worker {

struct OpenStore {
  std::shared_ptr<void> owner;  // the store ends with its last copy
  std::uint16_t port = 0;
};

// Listens on all addresses of this host, or only on loopback if `master_addr` is a loopback
// address. Port 0: a free one. Runs one thread. Throws WorkerError (Store) if it cannot listen.
OpenStore host_store(const std::string& master_addr, std::uint16_t port);

}  // namespace drun::worker
