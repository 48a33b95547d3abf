// edge. One client of the store: its socket, a partially read request, and unsent answers.
//
//   readable -> read a piece -> decode -> on_request, on_request, ... -> on_turn_end -> readable
//                                 |
//   too many unsent bytes: stops decoding and reading until the peer has read its answers
//
// It reads one piece in each turn of the loop, so that a client with many requests does not starve
// the others.
//
// Rows:    a client may send thousands of requests that need no answer (a row); during a row it
//          uses a RowReader.
// Owner:   StoreService and, during waits, its handlers, by shared_ptr. Its host outlives it or
//          calls `close`.
// Errors:  on_end once, with the reason, unless `close` was called first.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/store/message.h"
#include "rendezvous/store/store.h"
#include "rendezvous/store/wire.h"

namespace drun::rendezvous {

// Reads a row: thousands of requests that need no answer.
//
// A client that writes them in small pieces, as PyTorch's does, pays for each packet, which wakes
// the reader and causes an acknowledgment. The RowReader therefore polls the socket, so that no
// packet wakes it, and leaves the last byte in the socket although it has handled it: emptying a
// socket sends an acknowledgment at once. Pieces that wait for an acknowledgment stay with the
// sender, which sends them as one packet. (Without that byte, a row takes a third to a half
// longer.)
//
// Create it when a row begins, and call `end` when it has ended. The session's socket outlives it.
// After an error of the socket, read() returns no more bytes, and the next normal read reports the
// reason.
class RowReader {
 public:
  // A read of more bytes is not a row of small requests.
  static constexpr std::size_t kMostBytes = 64 * 1024;

  explicit RowReader(asio::ip::tcp::socket& socket);

  // Calls `on_time(error_code)` once, when it is time to read.
  template <typename OnTime>
  void wait(OnTime on_time) {
    timer_.expires_after(kPause);
    timer_.async_wait(std::move(on_time));
  }

  // Returns the bytes that have arrived, in `buffer`. Empty: the row has ended.
  std::string_view read(std::span<char> buffer);

  // Restores the normal state of the socket.
  void end();

 private:
  // A request after the row waits for its answer at most twice this time.
  static constexpr std::chrono::milliseconds kPause{1};

  asio::ip::tcp::socket* socket_;
  asio::steady_timer timer_;
  bool is_byte_left_ = false;  // the last byte was handled but is still in the socket
};

class StoreSession;

class StoreSessionHost {
 public:
  // An error ends the session.
  virtual Result<void> on_request(StoreSession& session, store::Request&& request) = 0;
  // All bytes of this turn have been handled (the session may have ended): time to flush.
  virtual void on_turn_end() = 0;
  // Empty `reason`: the peer has closed the connection normally.
  virtual void on_end(StoreSession& session, std::string_view reason) = 0;
  // The buffer into which the current session reads.
  virtual std::span<char> read_buffer() = 0;
  // Counts the memory of sessions.
  virtual StoreMemory& memory() = 0;

 protected:
  ~StoreSessionHost() = default;
};

class StoreSession : public std::enable_shared_from_this<StoreSession> {
 public:
  StoreSession(asio::ip::tcp::socket socket, ConnectionId id, const StoreLimits& limits,
               StoreSessionHost& host);

  // `first_bytes`: bytes already read from the socket.
  void start(std::string first_bytes);

  // Queues the answer. `flush` writes as much as the socket accepts, and the rest later.
  void send(const store::Answer& answer) {
    unanswered_pieces_ = 0;
    encode(answer, unsent_);
  }
  void flush();

  // Ends the session because of an error of the peer. Calls on_end.
  void end(std::string_view reason);
  // Idempotent; does not call on_end.
  void close();

  ConnectionId id() const { return id_; }
  bool is_open() const { return host_ != nullptr; }
  std::size_t unsent_bytes() const { return unsent_.size_bytes(); }
  std::optional<Dialect> dialect() const { return decoder_.dialect(); }
  // Queries the system at the first call; 0.0.0.0:0 if the peer has closed the connection by then.
  const asio::ip::tcp::endpoint& peer();

  // State that belongs to the host.
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
  std::string undecoded_;              // read, but not decoded until the peer has read its answers
  std::size_t counted_bytes_ = 0;      // bytes of these that the host has counted
  std::size_t unanswered_pieces_ = 0;  // small ones, read in a row
  std::unique_ptr<RowReader> row_;     // while there is one
  bool is_waiting_readable_ = false;
  bool is_waiting_writable_ = false;
};

}  // namespace drun::rendezvous
