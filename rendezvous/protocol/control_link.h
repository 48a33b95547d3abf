// edge. A member's link to the coordinator, as each side sees it: a control connection
// (control_connection.h), or a link within one process for the coordinator's own agent, which needs
// no socket.
//
// Owner:   shared_ptr. The Listener is not called after close or finish, and may call either from
//          within its callbacks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "rendezvous/net/asio.h"

namespace drun::rendezvous {

struct ConnectionEnd {
  bool is_wrong_peer = false;  // not drun, another version, or a peer that breaks the protocol
  bool has_spoken = false;     // the peer's preamble was received
  std::string reason;
  bool is_other_job = false;  // a drun with another secret or run id
};

class ControlLink {
 public:
  class Listener {
   public:
    // `frame` is valid during the call.
    virtual void on_frame(ControlLink& link, std::string_view frame) = 0;
    // The peer's preamble was received, so its process has answered. Called before any frame.
    virtual void on_open(ControlLink& /*link*/) {}
    virtual void on_end(ControlLink& link, const ConnectionEnd& end) = 0;

   protected:
    ~Listener() = default;
  };
  // Shared, because a large outcome may be sent to every node.
  using Bytes = std::shared_ptr<const std::string>;

  ControlLink(const ControlLink&) = delete;
  ControlLink& operator=(const ControlLink&) = delete;
  virtual ~ControlLink() = default;

  // The id that the owner has given to the link.
  std::uint64_t id() const { return id_; }
  // The other side's address and port.
  const std::string& peer() const { return peer_; }
  // The address alone (peer_address.h); empty: unknown.
  const std::string& address() const { return address_; }

  virtual void send(Bytes frame) = 0;
  void send(std::string frame) { send(std::make_shared<const std::string>(std::move(frame))); }
  // Sends a frame in two parts, which other frames may share.
  virtual void send(Bytes head, Bytes body) = 0;
  // Sends a bulk frame. Bulk frames keep their order; finish() drops the unsent ones.
  virtual void send_bulk(Bytes frame) = 0;
  // Bytes not passed on yet.
  virtual std::size_t queued_bytes() const = 0;
  virtual void set_frame_limit(std::size_t limit_bytes) = 0;
  // Ends the link; the peer still gets everything that was sent before.
  virtual void finish() = 0;
  // Ends the link at once.
  virtual void close() = 0;

 protected:
  ControlLink(std::uint64_t id, std::string address, std::string peer)
      : id_(id), address_(std::move(address)), peer_(std::move(peer)) {}

 private:
  const std::uint64_t id_;
  const std::string address_;
  const std::string peer_;
};

// The two ends of a link within this process: what one sends, the other's Listener gets from the
// loop. Both have the loopback address and `port`.
struct LocalLink {
  std::shared_ptr<ControlLink> coordinators_end;
  std::shared_ptr<ControlLink> members_end;
};
LocalLink make_local_link(asio::io_context& io, std::uint16_t port, std::uint64_t coordinators_id,
                          ControlLink::Listener& coordinator, ControlLink::Listener& member);

}  // namespace drun::rendezvous
