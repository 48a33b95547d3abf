// edge. A client of a TCPStore server (drun's or PyTorch's) over one blocking connection, with the
// operations that worker_lib needs.
//
// Keys:    the client adds "/" to the front of every key, as PyTorch's clients do, so that both
//          share keys. Values are bytes.
// Owner:   the caller; movable, closes its socket (close-on-exec) when destroyed. A moved-from
//          client may only be assigned to or destroyed.
// Thread:  any, one at a time. Blocks for at most the timeout, except for name resolution, which
//          the system limits. Causes no SIGPIPE.
// Errors:  Timeout: nothing happened in time. After wait and get the client stays usable
//          unless the server is silent; after any other operation it is closed (is_closed), because
//          the server may or may not still answer.
//          Closed: the server closed the connection, or an earlier error closed the client.
//          Unreachable (connect): nothing listened there in time, or the name is unknown.
//          Refused: the server is not a TCPStore (connect), or an answer is invalid.
//          Messages name the operation, the key and the endpoint. No output changes on failure.
//          Throws only std::bad_alloc.
// Note:    the server does not answer set: success means that the request was sent, in order. A
//          failure shows at the next operation.
// Source:  docs/internals/wire.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/net/endpoint.h"
#include "rendezvous/store/connection.h"
#include "rendezvous/store/message.h"
#include "rendezvous/store/wire.h"

namespace drun {

class StoreClient {
 public:
  using Milliseconds = std::chrono::milliseconds;

  struct Options {
    Endpoint endpoint{};
    // For the whole connect, and for every operation.
    Milliseconds timeout{std::chrono::seconds(300)};
    // The server's dialect. Absent: detected. This works with every server, but an older one sees
    // one or two connections that it drops.
    std::optional<Dialect> dialect{};
  };

  // Tries every address of the name, and retries with back-off while nothing listens there or the
  // name does not resolve, until the timeout.
  static Result<StoreClient> connect(const Options& options);

  // For a connection that exists already.
  StoreClient(const Endpoint& endpoint, StoreHandshake handshake, Milliseconds timeout);

  Dialect dialect() const { return dialect_; }
  // After an error; every further operation fails with Closed.
  bool is_closed() const { return !stream_ && !needs_reopening_; }
  void set_timeout(Milliseconds timeout) { timeout_ = timeout; }

  // Adds one to PyTorch's count of workers (the key "init/"), as each TCPStore object does: a
  // PyTorch program that hosts the store may wait until that count reaches its world size. Returns
  // the count.
  Result<std::int64_t> announce();

  Result<void> set(std::string_view key, std::string_view value);
  // Waits until the key exists.
  Result<std::string> get(std::string_view key);
  // A missing key counts as 0; returns the sum, which is stored as decimal text.
  Result<std::int64_t> add(std::string_view key, std::int64_t delta);
  // Stores `desired` if the value is `expected` (or if both the key is missing and `expected` is
  // empty). Returns the value after that; of a missing key with an `expected` value, `expected`.
  Result<std::string> compare_set(std::string_view key, std::string_view expected,
                                  std::string_view desired);
  // Until every key has existed; at once if all do.
  Result<void> wait(std::span<const std::string> keys);
  // Whether all keys exist.
  Result<bool> check(std::span<const std::string> keys);
  // Whether there was such a key.
  Result<bool> remove(std::string_view key);

 private:
  // A request: begin, the fields in the wire's order, send. `subject`: its name in error messages.
  void begin(Opcode opcode, std::string subject);
  void put_key(std::string_view key);
  void put_keys(std::span<const std::string> keys);
  Result<void> send();

  Result<void> read(char* to, std::size_t size_bytes);
  Result<std::int64_t> read_number();
  Result<std::string> read_text();
  Result<void> cancel_wait();

  Error named(Error error) const;
  // These close the connection.
  Error broken(Error error);
  Error nonsense(std::string_view what);

  Endpoint endpoint_;
  Dialect dialect_;
  Milliseconds timeout_;
  std::optional<StoreStream> stream_;  // absent: broken, or to be opened again
  bool needs_reopening_ = false;
  // The current request.
  Opcode opcode_ = Opcode::Ping;
  std::string subject_;
  StoreStream::Time deadline_;
  std::string request_;
};

}  // namespace drun
