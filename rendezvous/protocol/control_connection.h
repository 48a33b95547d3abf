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
// Owner:   shared_ptr; its handlers keep it until they have ended.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/net/asio.h"
#include "rendezvous/net/frame_reader.h"
#include "rendezvous/protocol/control_link.h"
#include "rendezvous/tls/tls_session.h"

namespace drun::rendezvous {

// Enough for everything that one turn of the loop can queue for a peer that reads: answers up to 1
// MiB (rendezvous/server/server.cc) and one more, the evidence of a hang, and an outcome.
constexpr std::size_t kSendLimitBytes = std::size_t{4} << 20;

class ControlConnection final : public ControlLink,
                                public std::enable_shared_from_this<ControlConnection> {
 public:
  // The accepting side answers a preamble; the connecting side sends its own first.
  using Side = TlsSession::Side;

  // `tls`: null for an unencrypted connection.
  ControlConnection(asio::ip::tcp::socket socket, Side side, std::size_t frame_limit_bytes,
                    std::uint64_t id, Listener& listener,
                    std::shared_ptr<const TlsContext> tls = nullptr);

  // `first_bytes`: bytes already read from the socket. May call on_end or on_frame.
  void start(std::string_view first_bytes);
  using ControlLink::send;
  void send(Bytes frame) override;
  void send(Bytes head, Bytes body) override;
  void send_bulk(Bytes frame) override;
  // Bytes not written to the kernel yet.
  std::size_t queued_bytes() const override { return queued_bytes_; }
  void set_frame_limit(std::size_t limit_bytes) override { reader_.set_limit(limit_bytes); }
  void finish() override;
  void close() override;

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
class RejectedConnections final : private ControlLink::Listener {
 public:
  // `is_tls`: the peer has a secret. Returns the line for this side's log.
  std::string add(asio::ip::tcp::socket socket, bool is_tls, const std::string& endpoint);
  void close();

 private:
  void on_frame(ControlLink&, std::string_view) override {}
  void on_end(ControlLink&, const ConnectionEnd&) override {}

  std::deque<std::shared_ptr<ControlConnection>> connections_;
};

}  // namespace drun::rendezvous
