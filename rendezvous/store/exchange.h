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
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "rendezvous/endpoint.h"
#include "rendezvous/result.h"
#include "rendezvous/store/handshake.h"
#include "rendezvous/store/stream.h"
#include "rendezvous/store/wire.h"

namespace drun {

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
