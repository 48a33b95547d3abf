// core. The requests and answers of a store, as values: wire.h decodes and encodes them, and Store
// answers requests. A Blob never changes while it is shared. See docs/internals/wire.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace drun {

// The two versions of PyTorch's TCPStore protocol. The first bytes of a connection select one.
enum class Dialect : std::uint8_t {
  Legacy,   // torch 1.13 to 2.0: the connection begins with an operation
  Current,  // torch 2.2 and later: it begins with VALIDATE
};

constexpr std::string_view to_string(Dialect dialect) {
  return dialect == Dialect::Legacy ? "legacy" : "current";
}

// One connection of one server, never used twice.
using ConnectionId = std::uint64_t;

// A stored value, which replies share instead of copying it. Null means empty.
using Blob = std::shared_ptr<const std::string>;

namespace store {

struct Ping {
  std::uint32_t nonce = 0;
};
struct Set {
  std::string key;
  std::string value;
};
struct CompareSet {
  std::string key;
  std::string expected;
  std::string desired;
};
struct Get {
  std::string key;
};
struct Add {
  std::string key;
  std::int64_t delta = 0;
};
struct Check {
  std::vector<std::string> keys;
};
struct Wait {
  std::vector<std::string> keys;
};
struct CancelWait {};
struct NumKeys {};
struct WatchKey {
  std::string key;
};
struct DeleteKey {
  std::string key;
};
struct Append {
  std::string key;
  std::string bytes;
};
struct MultiGet {
  std::vector<std::string> keys;
};
struct MultiSet {
  std::vector<std::pair<std::string, std::string>> entries;
};
struct QueuePush {
  std::string queue;
  std::string value;
};
struct QueuePop {
  std::string queue;
};
struct QueueLen {
  std::string queue;
};
struct ListKeys {};
struct Barrier {
  std::string key;
  std::int64_t world_size = 0;
};

using Request = std::variant<Ping, Set, CompareSet, Get, Add, Check, Wait, CancelWait, NumKeys,
                             WatchKey, DeleteKey, Append, MultiGet, MultiSet, QueuePush, QueuePop,
                             QueueLen, ListKeys, Barrier>;

// The one-byte answers. Values are the wire's.
enum class Signal : std::uint8_t {
  StopWaiting = 0,   // WAIT and BARRIER are over
  WaitCanceled = 1,  // one for each CANCEL_WAIT
  AllPresent = 0,    // CHECK
  NotPresent = 1,
  WatchRegistered = 3,
};
struct Nonce {
  std::uint32_t value = 0;
};
struct Number {
  std::int64_t value = 0;
};
struct Values {
  std::vector<Blob> blobs;
};
struct Keys {
  std::vector<std::string> keys;
};
// The length before the pop; `front` is sent only if that was more than 0.
struct Popped {
  std::int64_t length_before = 0;
  Blob front;
};
enum class Change : std::uint8_t { Updated = 0, Created = 1, Deleted = 2 };
// Sent to a connection that watches the key.
struct Changed {
  Change change = Change::Updated;
  std::string key;
  Blob before;
  Blob after;
};

using Answer = std::variant<Signal, Nonce, Number, Blob, Values, Keys, Popped, Changed>;

}  // namespace store

struct StoreReply {
  ConnectionId to = 0;
  store::Answer answer;
};

// Limits of the requests of one peer, and of the data that the store keeps for all (store.h).
// Beyond one of them, the connection is closed.
struct StoreLimits {
  std::size_t key_bytes = 8 * 1024;
  std::size_t value_bytes = 8 * 1024 * 1024;  // APPEND's result included
  std::size_t keys_per_request = 128 * 1024;  // of CHECK, WAIT, MULTI_GET and MULTI_SET
  std::size_t request_bytes = 256u << 20;     // all keys and values of one request
  std::size_t queued_bytes = 64u << 20;       // pushed to a peer that does not read
  std::size_t memory_bytes = SIZE_MAX;
};

}  // namespace drun
