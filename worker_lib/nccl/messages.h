// edge. Messages: for each direction between two ranks a communicator of these two, connected by
// their first message, so that no message waits behind a collective, nor behind one of the other
// direction. NCCL has neither tags nor headers: with is_debug the two compare type and count over
// the store.
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

// One direction.
struct Channel {
  int from = 0;
  int to = 0;
  std::uint64_t posted = 0;                      // messages
  std::uint64_t started = 0;                     // of those; changes under the CancelToken
  std::shared_ptr<Communicator> line = nullptr;  // of whose turn it is to be started
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
