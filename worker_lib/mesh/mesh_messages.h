// core. Messages between two ranks of a program over a Mesh.
//
// Protocol: a header with type, count and the sender's message number, and with the data if it is
// short; otherwise the data follows in a slot of that number. If the receiver has less room than
// the message, the message is never delivered. Headers of one pair and tag arrive in order; the
// data can arrive in any order. Both are sent when the message is started; finish only waits.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "drun/backend.h"
#include "worker_lib/mesh/mesh.h"

namespace drun::worker {

// Owned by the backend; outlives the Transfers, which cancel when destroyed. Thread: any,
// concurrently.
class MeshMessages {
 public:
  explicit MeshMessages(Mesh& mesh) : mesh_(mesh) {}

  std::unique_ptr<Transfer> start_send(const ConstElements& data, int to, int tag);
  std::unique_ptr<Transfer> start_recv(const Elements& data, std::optional<int> from, int tag,
                                       ClaimSide claim);

 private:
  Mesh& mesh_;
  std::atomic<std::uint64_t> next_number_{0};
};

}  // namespace drun::worker
