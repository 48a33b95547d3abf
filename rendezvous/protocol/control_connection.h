// edge. A control connection: a socket that carries a preamble and frames in each direction, inside
// TLS if it has a session.
//
//   start --> preambles --> frames --+-- close: closes at once, without a callback
//                 |            |     +-- finish: sends everything that is queued; reads and drops
//                 |            |         input until the peer closes, at most 2 s
//                 +------------+-- on_end, once
//
// Bulk:    bulk frames are sent after all other frames, also later ones, and in small pieces, so
//          that they do not delay other frames by much.
// Bound:   the unsent bytes, with bulk, are limited to kSendLimitBytes. If a peer does not read and
//          the queue exceeds the limit, the connection ends with that reason. Buffers that are
//          shared with other connections count in full for each.
// Finish:  reads on after the last message, because closing a socket with unread bytes resets the
//          connection, and the peer may then lose the message (a refusal or an outcome).
// Owner:   shared_ptr; its handlers keep it until they have ended. The Listener is not called after
//          close or finish, and may call either from within its callbacks.
// Thread:  the io_context's only.
// Errors:  on_end. Never throws.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/net/asio.h"
#include "rendezvous/net/frame_reader.h"
#include "rendezvous/net/tls_session.h"

namespace drun::rendezvous {

struct ConnectionEnd {
  bool is_wrong_peer = false;  // not drun, another version, or a peer that breaks the protocol
  bool has_spoken = false;     // the peer's preamble was received
  std::string reason;
  bool is_other_job = false;  // a drun with another secret or run id
};

// Enough for everything that one turn of the loop can queue for a peer that reads: answers up to 1
// MiB (server.cc) and one more, the evidence of a hang, and an outcome.
constexpr std::size_t kSendLimitBytes = std::size_t{4} << 20;

class ControlConnection : public std::enable_shared_from_this<ControlConnection> {
 public:
  class Listener {
   public:
    // `frame` is valid during the call.
    virtual void on_frame(ControlConnection& connection, std::string_view frame) = 0;
    // The peer's preamble was received, so its process has answered. Called before any frame.
    virtual void on_open(ControlConnection& /*connection*/) {}
    virtual void on_end(ControlConnection& connection, const ConnectionEnd& end) = 0;

   protected:
    ~Listener() = default;
  };
  // Shared, because a large outcome may be sent to every node.
  using Bytes = std::shared_ptr<const std::string>;
  // The accepting side answers a preamble; the connecting side sends its own first.
  enum class Side { Connecting, Accepting };

  // `tls`: a session of the same side; null for an unencrypted connection.
  ControlConnection(asio::ip::tcp::socket socket, Side side, std::size_t frame_limit_bytes,
                    std::uint64_t id, Listener& listener, std::unique_ptr<TlsSession> tls = {});

  // The id that the owner has given to the connection.
  std::uint64_t id() const { return id_; }
  // The other side's address and port.
  const std::string& peer() const { return peer_; }
  // The address alone (peer_address.h); empty: unknown.
  const std::string& address() const { return address_; }

  // `first_bytes`: bytes already read from the socket. May call on_end or on_frame.
  void start(std::string_view first_bytes);
  void send(Bytes frame);
  // Sends a frame in two parts, which other frames may share.
  void send(Bytes head, Bytes body);
  // Sends a bulk frame. Bulk frames keep their order; finish() drops the unsent ones.
  void send_bulk(Bytes frame);
  // Bytes not written to the kernel yet.
  std::size_t queued_bytes() const { return queued_bytes_; }
  void set_frame_limit(std::size_t limit_bytes) { reader_.set_limit(limit_bytes); }
  void finish();
  void close();

 private:
  void read();
  void take(std::string_view bytes);
  void take_sealed(std::string_view bytes);
  void take_plain(std::string_view bytes);
  void write_soon();
  bool has_room(std::size_t bytes);
  bool take_preamble();
  void take_frames();
  void write();
  void take_from(std::deque<Bytes>& queue);
  void wrote(const error_code& ec);
  void end(ConnectionEnd ended);
  void say_last_words();
  void shut_down_when_sent();

  asio::ip::tcp::socket socket_;
  asio::steady_timer linger_;
  const Side side_;
  const std::uint64_t id_;
  const std::string address_;
  const std::string peer_;
  Listener* listener_;  // null after finish or close
  FrameReader reader_;
  const std::unique_ptr<TlsSession> tls_;
  bool has_preamble_ = false;
  bool is_writing_ = false;
  bool is_finishing_ = false;
  ReadBuffer incoming_;
  bool is_overfull_ = false;
  std::string handshake_;       // TLS records of the handshake
  std::deque<Bytes> outgoing_;  // unencrypted until they are written, so that buffers stay shared
  std::deque<Bytes> bulk_;
  std::vector<Bytes> in_flight_;
  std::size_t queued_bytes_ = 0;  // in the two queues and in flight, as plain bytes
  std::size_t in_flight_bytes_ = 0;
};

// Connections of agents that have a secret although this one has none, or the other way around.
// Tells the peer, so that both sides log it. Keeps the last 64 connections open until the peer has
// read it. Call close() before destruction.
class RejectedConnections final : private ControlConnection::Listener {
 public:
  // `is_tls`: the peer has a secret. Returns the line for this side's log.
  std::string add(asio::ip::tcp::socket socket, bool is_tls, const std::string& endpoint);
  void close();

 private:
  void on_frame(ControlConnection&, std::string_view) override {}
  void on_end(ControlConnection&, const ConnectionEnd&) override {}

  std::deque<std::shared_ptr<ControlConnection>> connections_;
};

}  // namespace drun::rendezvous
