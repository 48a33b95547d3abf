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
#include <optional>
#include <string>
#include <vector>

#include "drun/backend.h"
#include "worker_lib/base/signature.h"
#include "worker_lib/nccl/collectives.h"
#include "worker_lib/nccl/communicators.h"
#include "worker_lib/nccl/start_queue.h"

namespace drun::worker {

class NcclMessages {
 public:
  explicit NcclMessages(Communicators& communicators) : communicators_(communicators) {}

  // Starts one message, or several with one rank that are issued together. The GPU of each message
  // is known. Once the two ranks are connected, the calling thread issues them.
  std::shared_ptr<StartQueue::Operation> start(const std::vector<MessageCall>& messages);
  StartQueue& queue(int peer) { return channel(peer).queue; }

  // Messages that are issued together, on the communicator that `connected` returns; null: there is
  // nothing to do. Call it in the order in which messages are started. `kind` is the same on both
  // sides of a message. `rank_of_peer`: of all the peers, in the communicator; absent: as in the
  // group.
  using Connected = std::function<std::shared_ptr<Communicator>(const Awaited& awaited)>;
  std::shared_ptr<StartQueue::Operation> together(const std::vector<MessageCall>& messages,
                                                  const char* kind, const Awaited& awaited,
                                                  std::optional<int> rank_of_peer,
                                                  Connected connected);

 private:
  // This rank and another one.
  struct Channel {
    explicit Channel(CancelToken& stop) : queue(stop) {}
    StartQueue queue;
    std::shared_ptr<Communicator> communicator = nullptr;  // belongs to the thread that issues
    std::atomic<bool> is_connected = false;
  };

  // What the two ranks of a message compare.
  struct Compared {
    bool is_send = false;
    int peer = 0;
    std::string key = "";
    Signature signature{};
  };
  // Empty without is_debug.
  std::vector<Compared> compared(const std::vector<MessageCall>& messages, const char* kind);
  // Publishes the sends, then waits for the other side of the receives.
  void compare(const std::vector<Compared>& all, Deadline deadline) const;
  Channel& channel(int peer);
  std::string name(int peer) const;

  Communicators& communicators_;
  std::mutex mutex_;
  std::map<int, Channel> channels_;               // by peer; never removed
  std::map<std::string, std::uint64_t> numbers_;  // messages of each kind and direction
};

}  // namespace drun::worker
