// edge. One client of the store: its socket, its half-read request, its unsent answers.
//
//   readable -> read a piece -> decode -> on_request, on_request, ... -> on_turn_end -> readable
//                                 |
//   too much unsent: decodes and reads no more until the peer has taken its answers
//
// One piece a turn, so that a client with an endless row of requests leaves turns to others.
//
// Rows:    a client may send thousands of requests without an answer; during such a row a RowReader
//          reads.
// Owner:   StoreService and, during waits, its handlers; a caller holds a shared_ptr. Its host
//          outlives it or calls `close`.
// Thread:  the io_context's only.
// Errors:  on_end once, with the reason, unless `close` was called first.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/store/message.h"
#include "rendezvous/store/store.h"
#include "rendezvous/store/wire.h"

// edge. Reads a row: thousands of requests without an answer.
//
// A sender who writes them in small pieces, as PyTorch's client does, pays for each piece that
// leaves at once: for waking its reader, and for the acknowledgement. So the reader looks at the
// socket now and then, is not woken in between, and leaves the last byte in the socket, though it
// was read: one that is emptied acknowledges at once. Pieces that wait for an acknowledgement stay
// with the sender, who sends them as one. (Without that byte, a row is a third to a half slower.)
//
// Shape:   made where a row begins; once it has ended, `end`, and read as usual again.
// Owner:   a session, whose socket outlives it.
// Thread:  the io_context's only.
// Errors:  none: a closed or broken socket gives nothing more, and the next usual read reports the
//          reason.

namespace drun::rendezvous {

class RowReader {
 public:
  // More than this at a time are not small requests.
  static constexpr std::size_t kMostBytes = 64 * 1024;

  explicit RowReader(asio::ip::tcp::socket& socket);

  // Calls `on_time(error_code)` once, when it is time to look.
  template <typename OnTime>
  void wait(OnTime on_time) {
    timer_.expires_after(kPause);
    timer_.async_wait(std::move(on_time));
  }

  // What came since, in `buffer`. Nothing: the row has ended.
  std::string_view read(std::vector<char>& buffer);

  // The socket as it was before.
  void end();

 private:
  // A request behind the row waits twice this for its answer, at most.
  static constexpr std::chrono::milliseconds kPause{1};

  asio::ip::tcp::socket* socket_;
  asio::steady_timer timer_;
  bool is_byte_left_ = false;  // read before, still in the socket
};

class StoreSession;

class StoreSessionHost {
 public:
  // An error ends the session.
  virtual Result<void> on_request(StoreSession& session, store::Request&& request) = 0;
  // What could be read in this turn has been given (the session may have ended): time to flush.
  virtual void on_turn_end() = 0;
  // An empty reason: the peer closed, as it may.
  virtual void on_end(StoreSession& session, std::string_view reason) = 0;
  // The buffer into which the current session reads.
  virtual std::vector<char>& read_buffer() = 0;
  // Where what sessions hold is counted.
  virtual StoreMemory& memory() = 0;

 protected:
  ~StoreSessionHost() = default;
};

class StoreSession : public std::enable_shared_from_this<StoreSession> {
 public:
  StoreSession(asio::ip::tcp::socket socket, ConnectionId id, const StoreLimits& limits,
               StoreSessionHost& host);

  // `first_bytes` have been read from the socket already.
  void start(std::string first_bytes);

  // Gathers; `flush` writes as much as the socket takes, and the rest when it takes more.
  void send(const store::Answer& answer) {
    unanswered_pieces_ = 0;
    encode(answer, unsent_);
  }
  void flush();

  // The peer is at fault. on_end is called.
  void end(std::string_view reason);
  // Idempotent; on_end is not called.
  void close();

  ConnectionId id() const { return id_; }
  bool is_open() const { return host_ != nullptr; }
  std::size_t unsent_bytes() const { return unsent_.size_bytes(); }
  std::optional<Dialect> dialect() const { return decoder_.dialect(); }
  // Asked of the system the first time; 0.0.0.0:0 if the peer has closed by then.
  const asio::ip::tcp::endpoint& peer();

  // The host's own notes.
  bool is_flush_due = false;
  bool is_overfull = false;
  bool is_counted_as_legacy = false;
  bool is_counted_as_silent = false;

 private:
  void wait_readable();
  void wait_in_row();
  void end_row();
  void wait_writable();
  void read_piece();
  void read_row();
  void take_turn(std::string_view bytes);
  void take(std::string_view bytes);
  void count(const char* action);
  void resume();

  asio::ip::tcp::socket socket_;
  const ConnectionId id_;
  StoreSessionHost* host_;  // null once closed
  std::optional<asio::ip::tcp::endpoint> peer_;
  RequestDecoder decoder_;
  OutQueue unsent_;
  std::string undecoded_;              // read, but left until the peer has taken its answers
  std::size_t counted_bytes_ = 0;      // of all these, by the host
  std::size_t unanswered_pieces_ = 0;  // small ones, read in a row
  std::unique_ptr<RowReader> row_;     // while there is one
  bool is_waiting_readable_ = false;
  bool is_waiting_writable_ = false;
};

}  // namespace drun::rendezvous
