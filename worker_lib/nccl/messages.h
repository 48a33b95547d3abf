// edge. Messages over NCCL. Two ranks have one communicator for both directions, connected by the
// first message, so that no message waits for a collective or for another rank's message.
//
// Order:   NCCL runs the operations of a communicator one after the other, in the order in which
//          each of its ranks has started them. Two ranks that both send first wait for each other,
//          unless NCCL can buffer the message. Messages that are issued together do not.
// Debug:   NCCL has neither tags nor headers: with is_debug, the two ranks compare type and count
//          over the store.
// Thread:  any.
// Owner:   the backend; the Communicators outlive it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "drun/backend.h"
#include "worker_lib/nccl/collectives.h"
#include "worker_lib/nccl/communicators.h"
#include "worker_lib/nccl/start_queue.h"

namespace drun::worker {

// For NCCL. `peer`: the other rank's number in the communicator.
P2P p2p_of(const MessageCall& message, int peer);

class NcclMessages {
 public:
  explicit NcclMessages(Communicators& lines) : lines_(lines) {}

  // Starts one message, or several with one rank that are issued together. The GPU of each message
  // is known. Once the two ranks are connected, the calling thread issues them.
  std::shared_ptr<StartQueue::Operation> start(const std::vector<MessageCall>& messages);
  StartQueue& queue(int peer) { return channel(peer).queue; }

  // The point after which a message may run.
  Event point_of(const MessageCall& message);
  // For comparisons: publishes the sends, then waits for the other side of the receives.
  using Comparison = std::function<void(Deadline deadline)>;
  // In the order in which messages are started; does nothing without is_debug. `kind` is the same
  // on both sides.
  Comparison comparison_of(const std::vector<MessageCall>& messages, const char* kind);

 private:
  // This rank and another one.
  struct Channel {
    explicit Channel(CancelToken& stop) : queue(stop) {}
    StartQueue queue;
    std::shared_ptr<Communicator> line = nullptr;  // belongs to the thread that issues
    std::atomic<bool> is_connected = false;
  };

  Channel& channel(int peer);
  std::string name(int peer) const;

  Communicators& lines_;
  std::mutex mutex_;
  std::map<int, Channel> channels_;                // by peer; never removed
  std::map<std::string, std::uint64_t> compared_;  // messages of each kind and direction
};

}  // namespace drun::worker
