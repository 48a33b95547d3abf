// edge. One request after another to a store, and their answers: what StoreClient's operations are
// made of.
//
//   exchange.begin(Opcode::Add, "\"a\"", timeout).key("a").number(1).ask_number()
//
// Owner:   StoreClient.   Thread: any, one at a time.
// Errors:  as StoreClient says; every error names operation, subject and endpoint. After all but a
//          timed-out wait the connection is closed.
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

// edge. A blocking TCP connection on which everything has a deadline.
//
// Owner:   the caller; movable, closes its socket when destroyed.
// Thread:  any, one at a time.
// Units:   deadlines are steady-clock points.
// Errors:  Timeout, Closed (end of stream, reset), Unreachable (open), System; messages give the
//          reason alone, the caller says what it was doing. After an error the stream may have read
//          or written a part: close it, unless it was a Timeout of `read` with nothing read.

namespace drun {

class StoreStream {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Tries each address of the name once, in the system's order; the error is the last one's.
  static Result<StoreStream> open(const Endpoint& endpoint, Time deadline);
  // Of a socket that is connected, and does not block.
  explicit StoreStream(UniqueFd fd);

  Result<void> write(std::string_view bytes, Time deadline);
  // Exactly `size_bytes` of them.
  Result<void> read(char* to, std::size_t size_bytes, Time deadline);

 private:
  Result<std::size_t> receive(char* to, std::size_t size_bytes, Time deadline);

  UniqueFd fd_;
  std::vector<char> buffer_;  // read ahead; bytes from taken_ to filled_ are to be given out
  std::size_t taken_ = 0;
  std::size_t filled_ = 0;
};

// Waits for the time to pass; for back-off between attempts.
void wait_until(StoreStream::Time time);

// edge. Gets a client connected to a TCPStore server of unknown age: finds it, and finds out what
// it speaks.
//
// Owner, thread: as StoreStream.
// Errors:  Unreachable, Timeout (it accepts and says nothing), Refused (it speaks something else);
//          messages name the endpoint.

struct StoreHandshake {
  StoreStream stream;
  Dialect dialect = Dialect::Current;
};

// Absent `dialect`: detects it. Retries with back-off until the deadline while nothing listens
// there.
Result<StoreHandshake> shake_hands(const Endpoint& endpoint, std::optional<Dialect> dialect,
                                   StoreStream::Time deadline);

class StoreExchange {
 public:
  using Milliseconds = std::chrono::milliseconds;

  StoreExchange(const Endpoint& endpoint, StoreHandshake handshake)
      : endpoint_(endpoint), dialect_(handshake.dialect), stream_(std::move(handshake.stream)) {}

  const Endpoint& endpoint() const { return endpoint_; }
  Dialect dialect() const { return dialect_; }

  // A request: what messages call its subject, then its fields in the wire's order.
  StoreExchange& begin(Opcode opcode, std::string_view subject, Milliseconds timeout);
  StoreExchange& key(std::string_view key);  // with the "/" of a user's key
  StoreExchange& text(std::string_view value);
  StoreExchange& number(std::int64_t value);
  StoreExchange& keys(std::span<const std::string> keys);

  Result<void> send();
  // Until the byte comes that ends a WAIT or BARRIER; cancelled when its time is up.
  Result<void> send_and_wait();
  Result<std::int64_t> ask_number();

  Result<std::uint8_t> read_byte();
  Result<std::int64_t> read_number();
  Result<std::string> read_text();

  // The request that was begun took too long, but the connection is as good as before.
  Error timed_out() const;
  // The answer makes no sense: nothing after it can be trusted.
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

// A point in time that is not beyond the clock's end, however long the timeout.
StoreStream::Time after(std::chrono::milliseconds timeout);

}  // namespace drun
