// edge. The connection of a StoreClient: a blocking TCP stream with deadlines (StoreStream), the
// detection of the server's dialect (shake_hands), and requests and their answers (StoreExchange).
// Use it from any thread, one at a time. Deadlines are times of the steady clock.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/endpoint.h"
#include "rendezvous/store/message.h"
#include "rendezvous/store/wire.h"

namespace drun {

// A blocking TCP connection with deadlines.
//
// Errors:  Timeout, Closed (end of stream, reset), Unreachable (open), System. Messages contain
//          only the reason; the caller adds the operation. After an error the stream may have read
//          or written a part: close it, except after a Timeout of `read` that has read nothing.
class StoreStream {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Tries each address of the name once, in the system's order; the error is the last one's.
  static Result<StoreStream> open(const Endpoint& endpoint, Time deadline);
  // For a socket that is connected and nonblocking.
  explicit StoreStream(UniqueFd fd);

  Result<void> write(std::string_view bytes, Time deadline);
  // Reads exactly `size_bytes`.
  Result<void> read(char* to, std::size_t size_bytes, Time deadline);

 private:
  Result<std::size_t> receive(char* to, std::size_t size_bytes, Time deadline);

  UniqueFd fd_;
  std::vector<char> buffer_;  // read ahead; bytes from taken_ to filled_ are not returned yet
  std::size_t taken_ = 0;
  std::size_t filled_ = 0;
};

// Blocks until `time`, for the back-off between attempts.
void wait_until(StoreStream::Time time);

struct StoreHandshake {
  StoreStream stream;
  Dialect dialect = Dialect::Current;
};

// Connects to a TCPStore server and detects its dialect if `dialect` is absent. Retries with
// back-off until the deadline while nothing listens there. Errors, with the endpoint: Unreachable,
// Timeout (it accepts and does not answer), Refused (it uses another protocol).
Result<StoreHandshake> shake_hands(const Endpoint& endpoint, std::optional<Dialect> dialect,
                                   StoreStream::Time deadline);

// Sends requests and reads their answers:
//
//   exchange.begin(Opcode::Add, "\"a\"", timeout).key("a").number(1).ask_number()
//
// Errors:  those of StoreClient; every error names operation, subject and endpoint. All errors
//          except a timed-out wait close the connection.
class StoreExchange {
 public:
  using Milliseconds = std::chrono::milliseconds;

  StoreExchange(const Endpoint& endpoint, StoreHandshake handshake)
      : endpoint_(endpoint), dialect_(handshake.dialect), stream_(std::move(handshake.stream)) {}

  const Endpoint& endpoint() const { return endpoint_; }
  Dialect dialect() const { return dialect_; }

  // Begins a request; add its fields in the wire's order. `subject`: its name in error messages.
  StoreExchange& begin(Opcode opcode, std::string_view subject, Milliseconds timeout);
  StoreExchange& key(std::string_view key);  // with the "/" of a user's key
  StoreExchange& text(std::string_view value);
  StoreExchange& number(std::int64_t value);
  StoreExchange& keys(std::span<const std::string> keys);

  Result<void> send();
  // Waits for the byte that ends a WAIT or BARRIER; cancels the wait at the timeout.
  Result<void> send_and_wait();
  Result<std::int64_t> ask_number();

  Result<std::uint8_t> read_byte();
  Result<std::int64_t> read_number();
  Result<std::string> read_text();

  // The error for a request that timed out but leaves the connection usable.
  Error timed_out() const;
  // The error for an invalid answer; closes the connection.
  Error nonsense(std::string_view what);

 private:
  Error named(Error error) const;
  Error broken(Error error);
  Result<void> checked(Result<void> result);
  Result<void> reopen();
  Result<void> cancel_wait();

  Endpoint endpoint_;
  Dialect dialect_;
  std::optional<StoreStream> stream_;  // absent: broken, or to be opened again
  bool needs_reopening_ = false;
  Opcode opcode_ = Opcode::Ping;
  std::string subject_;
  Milliseconds timeout_{0};
  StoreStream::Time deadline_;
  std::string request_;
};

// Now plus `timeout`, limited to the range of the clock.
StoreStream::Time after(std::chrono::milliseconds timeout);

}  // namespace drun
