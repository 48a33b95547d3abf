// core. Messages between two ranks of a program over a Mesh.
//
// On the wire: a header with type, count and the sender's number of the message, and with the data
// if it is short; then the data in a slot of that number. A receiver with less room than the
// message is never given it. Headers of one pair and tag are in order; the data may come in any.
//
// Both go out when started: finish only waits.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "drun/backend.h"
#include "worker_lib/mesh/mesh.h"

namespace drun::worker {

// Owner:  the backend; outlives the Transfers, which stop when destroyed.
// Thread: any, all at once.
class MeshMessages {
 public:
  explicit MeshMessages(Mesh& mesh) : mesh_(mesh) {}

  std::unique_ptr<Transfer> start_send(const ConstElements& data, int to, int tag);
  std::unique_ptr<Transfer> start_recv(const Elements& data, std::optional<int> from, int tag);

 private:
  Mesh& mesh_;
  std::atomic<std::uint64_t> next_number_{0};
};

}  // namespace drun::worker
