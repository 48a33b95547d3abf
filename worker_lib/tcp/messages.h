// edge. The messages of one rank: short ones, and long ones that the receiver grants (frames.h).
//
// Owner:   the mesh; the Connections outlive it. Keeps pointers to Sends and Receives from start()
//          until they are done or given up.
// Thread:  one at a time.   Errors: throws BackendFailure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "worker_lib/mesh/matcher.h"
#include "worker_lib/tcp/connections.h"
#include "worker_lib/tcp/frames.h"
#include "worker_lib/tcp/pending_messages.h"

namespace drun::worker::tcp {

class Messages final : public FrameHandler {
 public:
  explicit Messages(Connections& connections)
      : connections_(connections), peers_(static_cast<std::size_t>(connections.size())) {
    connections_.deliver_to(*this);
  }

  void start(Send& send);
  void start(Receive& receive);
  // Throw why it will not be done.
  void check(const Send& send) const;
  void check(const Receive& receive) const;
  // Forget one that is not done.
  void give_up(Send& send);
  void give_up(Receive& receive);

  bool take_frame(int from, const Frame& frame, Payload& payload) override;
  void end_payload(Payload& payload) override;

 private:
  // The destination of a granted message.
  struct Granted {
    Receive* receive = nullptr;  // null: given up
    std::size_t size_bytes = 0;
    std::size_t left_bytes = 0;
  };
  struct Peer {
    std::size_t ahead_bytes = 0;       // of its window that are in use
    std::size_t uncredited_bytes = 0;  // not yet returned as credit
    std::size_t held_bytes = 0;        // of this rank's window: sent, not received yet
    std::unordered_map<std::uint64_t, Granted> granted{};  // by the sender's number
  };

  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  std::size_t lanes_for(const Send& send) const;
  bool take_eager(int from, const Frame& frame, Payload& payload);
  bool take_ask(int from, const Frame& frame);
  bool take_grant(int from, const Frame& frame);
  bool take_data(int from, const Frame& frame, Payload& payload);
  // All of the early message has arrived.
  void finish(Receive& receive, Arrival& arrival);
  void grant(Receive& receive, int from, std::uint64_t number);
  // That rank's window has so much more room.
  void credit(int from, std::size_t size_bytes);

  Connections& connections_;
  std::vector<Peer> peers_;
  SpareBuffers spares_;
  Matcher<Receive*, std::shared_ptr<Arrival>> matcher_{kMostAnnounced};
  std::uint64_t next_number_ = 0;
  std::unordered_map<std::uint64_t, Send*> asked_;  // null: given up
};

}  // namespace drun::worker::tcp
