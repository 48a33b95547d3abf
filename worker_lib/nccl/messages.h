// edge. Messages over NCCL. Each direction between two ranks has a communicator of these two,
// connected by its first message, so that no message waits for a collective or for a message in the
// other direction. NCCL has neither tags nor headers: with is_debug, the two ranks compare type and
// count over the store.
//
// Thread:  any.
// Owner:   the backend; the Communicators outlive it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "drun/backend.h"
#include "worker_lib/nccl/communicators.h"

namespace drun::worker {

// One direction between two ranks.
struct Channel {
  int from = 0;
  int to = 0;
  std::uint64_t posted = 0;                      // messages
  std::uint64_t started = 0;                     // of these; changed with CancelToken::change()
  std::shared_ptr<Communicator> line = nullptr;  // used by the message whose turn it is
};

class NcclMessages {
 public:
  explicit NcclMessages(Communicators& lines) : lines_(lines) {}

  std::unique_ptr<Transfer> start_send(const ConstElements& data, int to);
  std::unique_ptr<Transfer> start_recv(const Elements& data, int from);

 private:
  std::unique_ptr<Transfer> start(const Elements& data, int from, int to);

  Communicators& lines_;
  std::mutex mutex_;
  std::map<std::pair<int, int>, Channel> channels_;
};

}  // namespace drun::worker
