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

#include "rendezvous/asio.h"
#include "rendezvous/frame_reader.h"
#include "rendezvous/tls_session.h"

namespace drun::rendezvous {

struct ConnectionEnd {
  bool is_wrong_peer = false;  // not drun, another version of it, or one that breaks its protocol
  bool has_spoken = false;     // the peer's preamble had come
  std::string reason;
  bool is_other_job = false;  // a drun, but without our secret and run id
};

class ControlConnection : public std::enable_shared_from_this<ControlConnection> {
 public:
  class Listener {
   public:
    // `frame` is valid during the call.
    virtual void on_frame(ControlConnection& connection, std::string_view frame) = 0;
    // The peer's preamble has come, so its process has answered the connection. Before any frame.
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
  // Frames that may be overtaken by others, but not by each other; finish drops what is left.
  void send_bulk(Bytes frame);
  void set_frame_limit(std::size_t limit_bytes) { reader_.set_limit(limit_bytes); }
  void finish();
  void close();

 private:
  void read();
  void take(std::string_view bytes);
  void take_sealed(std::string_view bytes);
  void take_plain(std::string_view bytes);
  void send_sealed();
  bool take_preamble();
  void take_frames();
  void write();
  void take_bulk();
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
  std::vector<Bytes> outgoing_;
  std::deque<Bytes> bulk_;
  std::vector<Bytes> in_flight_;
};

}  // namespace drun::rendezvous
