// edge. One control connection: a socket, its preamble, frames in, frames out; all of it inside TLS
// when it is given a session.
//
//   start --> preambles --> frames <--> frames --+-- close: gone at once, nothing is reported
//                 |            |                 +-- finish: what was sent goes out, what comes is
//                 |            |                     read and dropped until the peer closes, or 2 s
//                 +------------+-- on_end, once
//
// Bulk:    waits for all that is sent, also for what is sent after it, and little of it goes at a
//          time: other frames are never far behind it.
// Bound:   of what the peer has not taken yet, bulk included, kSendLimitBytes. A peer that lets
// more
//          pile up does not read: the connection ends, and on_end names that as its reason.
//          Buffers shared with other connections count in full here, and exist once.
// Why read on: a socket closed with unread bytes is reset, and a reset takes the last message
//          (a refusal, an outcome) out of the peer's hands.
// Owner:   shared_ptr; its handlers keep it until they have ended. The Listener is not called after
//          close or finish, and may call either from within its calls.
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
  bool is_wrong_peer = false;  // not drun, another version of it, or one that breaks its protocol
  bool has_spoken = false;     // the peer's preamble had been received
  std::string reason;
  bool is_other_job = false;  // a drun, but without our secret and run id
};

// Room for all that one turn may queue for a peer that reads: answers up to 1 MiB (server.cc), then
// one more, a hang's evidence and an outcome.
constexpr std::size_t kSendLimitBytes = std::size_t{4} << 20;

class ControlConnection : public std::enable_shared_from_this<ControlConnection> {
 public:
  class Listener {
   public:
    // `frame` is valid during the call.
    virtual void on_frame(ControlConnection& connection, std::string_view frame) = 0;
    // The peer's preamble has been received: its process has answered. Before any frame.
    virtual void on_open(ControlConnection& /*connection*/) {}
    virtual void on_end(ControlConnection& connection, const ConnectionEnd& end) = 0;

   protected:
    ~Listener() = default;
  };
  // Shared, because one outcome goes to every node, and may be large.
  using Bytes = std::shared_ptr<const std::string>;
  // The accepting side answers a preamble; the connecting side sends its own first.
  enum class Side { Connecting, Accepting };

  // `tls`: of the same side; null for plain words.
  ControlConnection(asio::ip::tcp::socket socket, Side side, std::size_t frame_limit_bytes,
                    std::uint64_t id, Listener& listener, std::unique_ptr<TlsSession> tls = {});

  // The owner's name for it.
  std::uint64_t id() const { return id_; }
  // The other side's address and port.
  const std::string& peer() const { return peer_; }
  // The address alone (peer_address.h); empty: unknown.
  const std::string& address() const { return address_; }

  // `first_bytes`: what was read from the socket before. on_end or on_frame may be called in it.
  void start(std::string_view first_bytes);
  void send(Bytes frame);
  // A frame in two parts, which other frames may share.
  void send(Bytes head, Bytes body);
  // Frames that may be overtaken by others, but not by each other; finish drops what is left.
  void send_bulk(Bytes frame);
  // Not taken by the kernel yet.
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
  std::deque<Bytes> outgoing_;  // plain: sealed when they are written, so that buffers stay shared
  std::deque<Bytes> bulk_;
  std::vector<Bytes> in_flight_;
  std::size_t queued_bytes_ = 0;  // in the two queues and in flight, as plain bytes
  std::size_t in_flight_bytes_ = 0;
};

// edge. Connections of druns that have a secret where this one has none, or the other way round:
// each side logs it.
// Limits:  the last 64 may take their time to read it and hang up.
// Owner:   Server; close before destruction.
// Thread:  the io_context's only.
// Errors:  none.

class RejectedConnections final : private ControlConnection::Listener {
 public:
  // `is_tls`: it is the one that has a secret. Gives the line for this side's log.
  std::string add(asio::ip::tcp::socket socket, bool is_tls, const std::string& endpoint);
  void close();

 private:
  void on_frame(ControlConnection&, std::string_view) override {}
  void on_end(ControlConnection&, const ConnectionEnd&) override {}

  std::deque<std::shared_ptr<ControlConnection>> connections_;
};

}  // namespace drun::rendezvous
