// edge. A client of a TCPStore server (drun's or PyTorch's) over one blocking connection.
//
// Keys:    the client adds "/" to the front of every key, as PyTorch's clients do, so that both
//          share keys; list_keys removes it. Values are bytes.
// Owner:   the caller; movable, closes its socket (close-on-exec) when destroyed. A moved-from
//          client may only be assigned to or destroyed.
// Thread:  any, one at a time. Blocks for at most the timeout, except for name resolution, which
//          the system limits. Causes no SIGPIPE.
// Errors:  Timeout      nothing happened in time. After wait, get, multi_get, queue_pop and barrier
//                       the client stays usable; after any other operation it is closed, because
//                       the server may or may not still answer.
//          Closed       the server closed the connection, or an earlier error closed the client.
//          Unreachable  connect: nothing listened there within the timeout, or the name is unknown.
//          Refused      connect: the server is not a TCPStore; later: an answer is invalid.
//          Usage        the operation does not exist in this server's dialect, or the wire cannot
//                       carry the arguments.
//          Messages name the key and the endpoint. No output changes on failure. Throws only
//          std::bad_alloc.
// Note:    the server does not answer set, multi_set, append and queue_push: success means that the
//          request was sent, in order. A failure shows at the next operation.
// Source:  docs/internals/wire.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/net/endpoint.h"
#include "rendezvous/store/message.h"

namespace drun {

class StoreExchange;

class StoreClient {
 public:
  using Milliseconds = std::chrono::milliseconds;
  using KeyValue = std::pair<std::string, std::string>;

  struct Options {
    Endpoint endpoint{};
    // For the whole connect, and for every operation without its own timeout.
    Milliseconds timeout{std::chrono::seconds(300)};
    // The server's dialect. Absent: detected. This works with every server, but an older one sees
    // one or two connections that it drops.
    std::optional<Dialect> dialect{};
  };

  // Tries every address of the name, and retries with back-off while nothing listens there or the
  // name does not resolve, until the timeout.
  static Result<StoreClient> connect(const Options& options);

  // For a connection that exists already.
  StoreClient(std::unique_ptr<StoreExchange> exchange, Milliseconds timeout);
  StoreClient(StoreClient&&) noexcept;
  StoreClient& operator=(StoreClient&&) noexcept;
  ~StoreClient();

  const Endpoint& endpoint() const;
  Dialect dialect() const;
  Milliseconds timeout() const;
  void set_timeout(Milliseconds timeout);

  // Adds one to PyTorch's count of workers (the key "init/"), as each TCPStore object does: a
  // PyTorch program that hosts the store may wait until that count reaches its world size.
  // Returns the count.
  Result<std::int64_t> announce();

  Result<void> set(std::string_view key, std::string_view value);
  // Waits until the key exists.
  Result<std::string> get(std::string_view key);
  Result<std::string> get(std::string_view key, Milliseconds timeout);
  // A missing key counts as 0; returns the sum, which is stored as decimal text.
  Result<std::int64_t> add(std::string_view key, std::int64_t delta);
  // Stores `desired` if the value is `expected` (or if both the key is missing and `expected` is
  // empty). Returns the value after that; of a missing key with an `expected` value, `expected`.
  Result<std::string> compare_set(std::string_view key, std::string_view expected,
                                  std::string_view desired);
  // Until every key has existed; at once if all do. A timeout of 0 asks once.
  Result<void> wait(std::span<const std::string> keys);
  Result<void> wait(std::span<const std::string> keys, Milliseconds timeout);
  // Whether all keys exist.
  Result<bool> check(std::span<const std::string> keys);
  // Returns whether the key existed.
  Result<bool> delete_key(std::string_view key);
  // The number of keys of all clients, including the count of workers.
  Result<std::int64_t> num_keys();

  // Usage with a legacy server: append, list_keys, barrier and the queues.
  Result<void> append(std::string_view key, std::string_view bytes);
  // Waits for all keys; the values are in the order of the keys.
  Result<std::vector<std::string>> multi_get(std::span<const std::string> keys);
  Result<std::vector<std::string>> multi_get(std::span<const std::string> keys,
                                             Milliseconds timeout);
  Result<void> multi_set(std::span<const KeyValue> entries);

  Result<void> queue_push(std::string_view queue, std::string_view value);
  // Removes and returns the oldest value; waits for one until the timeout. With a timeout of 0,
  // returns nullopt if the queue is empty.
  Result<std::optional<std::string>> queue_pop(std::string_view queue, Milliseconds timeout);
  Result<std::int64_t> queue_len(std::string_view queue);

  // In no particular order; only keys with the "/".
  Result<std::vector<std::string>> list_keys();
  // Blocks until `world_size` callers have called it with this key. Use a key for one barrier only.
  Result<void> barrier(std::string_view key, std::int64_t world_size);
  Result<void> barrier(std::string_view key, std::int64_t world_size, Milliseconds timeout);

 private:
  std::unique_ptr<StoreExchange> exchange_;
  Milliseconds timeout_;
};

}  // namespace drun
