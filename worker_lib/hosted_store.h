// edge. A store inside this process, for jobs whose launcher hosts none: rank 0 serves it.
#pragma once

#include <cstdint>
#include <memory>

namespace drun::worker {

// Listens on `port` of every address until the last copy of the result is gone. Runs one thread.
// Throws WorkerError (Store) if it cannot listen.
std::shared_ptr<void> host_store(std::uint16_t port);

}  // namespace drun::worker
