// core. The store of a round: keys and values, waiting clients, queues, barriers and watchers.
//
// Handles the requests of many connections, one at a time. A request produces replies for its own
// connection and for the connections whose wait it completes.
//
// Cost:    a request costs its own keys and the waiters it wakes; `forget` costs the keys that this
//          connection waits for or watches. Values are moved in and shared out, not copied.
// Errors:  apply returns Refused if it cannot serve the request (ADD to a value that is not a
//          number, a value that would exceed the size limit, no room in StoreMemory). The store is
//          then unchanged, there is no reply, and the caller should close the connection. The only
//          exception is std::bad_alloc.
// Source:  TCPStore's libuv server; differences are listed in docs/internals/wire.md.
#pragma once

#include <cstddef>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/base/text.h"
#include "rendezvous/store/message.h"

namespace drun {

constexpr std::size_t kStoreEntryBytes = 128;

// Counts the memory that a store's clients use, and its limit (--store-memory).
//
// Each key, value, queue entry, wait for a key and watch counts as its size plus kStoreEntryBytes.
// Partial requests and unsent replies count as their size. A value counts as long as it is
// referenced, for example by a reply that has not been sent.
class StoreMemory {
 public:
  explicit StoreMemory(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  bool has_room(std::size_t bytes) const { return !is_over() && bytes <= limit_bytes_ - used_; }
  bool is_over() const { return used_ > limit_bytes_; }
  void take(std::size_t bytes) { used_ += bytes; }
  void give(std::size_t bytes) { used_ -= bytes; }
  // Updates the count for an object whose size changes, and stores its new size in `from`.
  void change(std::size_t& from, std::size_t to) {
    used_ = used_ - from + to;
    from = to;
  }

  std::size_t used_bytes() const { return used_; }
  std::size_t limit_bytes() const { return limit_bytes_; }

 private:
  const std::size_t limit_bytes_;
  std::size_t used_ = 0;
};

// The error for a client that is disconnected because of the limit; `operation` names the request.
inline std::string too_much_memory(const std::string& operation, const StoreMemory& memory) {
  return operation + " would take the store beyond its limit of " +
         std::to_string(memory.limit_bytes()) + " bytes; raise --store-memory";
}

// Connections that wait for keys. Waits are found by key when the key is set, and by connection
// when the connection cancels.
//
// A connection has at most one wait; a new one replaces it. A wait has a place in the queue of each
// missing key, and completes when all of its places have been woken.
//
//   key "a":  [conn 1] [conn 7] [conn 9]        wake_all: O(its waiters)
//   key "b":  [conn 7]                          cancel:   O(own places)
class StoreWaiters {
 public:
  // A barrier's key can also be waited for as a plain key; that wait completes earlier.
  enum class Kind { Key, Barrier };

  // `keys` is not empty. A key that occurs N times must be woken N times.
  void wait(ConnectionId connection, Kind kind, const std::vector<std::string_view>& keys);

  // No-op if the connection is not waiting.
  void cancel(ConnectionId connection);

  // Wake all waiters for `key`, or only the one that has waited longest. Append the connections
  // that stop waiting to `done`.
  void wake_all(Kind kind, std::string_view key, std::vector<ConnectionId>& done);
  void wake_one(Kind kind, std::string_view key, std::vector<ConnectionId>& done);

  void clear();
  std::size_t count() const { return waits_.size(); }
  // Size as counted by StoreMemory.
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  struct Wait;
  struct Waiter {
    Wait* wait = nullptr;
    std::size_t place = 0;  // which of wait->places this is
  };
  using Queue = std::list<Waiter>;
  using Queues = TextMap<Queue>;  // none of them empty
  struct Place {
    Queues* queues = nullptr;
    Queues::value_type* entry = nullptr;  // its address is stable until it is erased
    Queue::iterator at;
  };
  struct Wait {
    ConnectionId connection = 0;
    std::vector<Place> places;
  };

  Queues& queues(Kind kind) { return kind == Kind::Key ? key_queues_ : barrier_queues_; }
  static std::size_t cost_of(std::string_view key) { return key.size() + kStoreEntryBytes; }
  void call(const Waiter& waiter, std::string_view key, std::vector<ConnectionId>& done);

  std::unordered_map<ConnectionId, Wait> waits_;
  Queues key_queues_;
  Queues barrier_queues_;
  std::size_t size_bytes_ = 0;
};

class Store {
 public:
  explicit Store(const StoreLimits& limits)
      : limits_(limits), memory_(std::make_shared<StoreMemory>(limits.memory_bytes)) {}
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Replies are appended to `replies`; those for one connection are in the order to be sent.
  Result<void> apply(ConnectionId from, store::Request&& request, std::vector<StoreReply>& replies);

  // Removes the wait and the watches of a closed connection.
  void forget(ConnectionId connection);

  // Removes everything, including waits and watches, without replies.
  void clear();

  std::size_t key_count() const { return values_.size(); }
  std::size_t waiting_count() const { return waiters_.count(); }
  // The owner also counts its connections' buffers here.
  StoreMemory& memory() { return *memory_; }

 private:
  using Value = std::shared_ptr<std::string>;  // changed in place only while not shared
  class Turn;                                  // one request being served

  Value hold(std::string&& text) const;
  void count_index(std::size_t add, std::size_t remove);
  void count_waits() { memory_->change(waits_bytes_, waiters_.size_bytes()); }

  const StoreLimits limits_;
  const std::shared_ptr<StoreMemory> memory_;
  std::size_t index_bytes_ = 0;  // keys of values, of queues and of watches
  std::size_t keys_bytes_ = 0;   // keys of values only, without kStoreEntryBytes each
  std::size_t waits_bytes_ = 0;
  TextMap<Value> values_;
  TextMap<std::deque<Blob>> queues_;  // none of them empty
  StoreWaiters waiters_;
  TextMap<std::unordered_set<ConnectionId>> watchers_;  // none of them empty
  std::unordered_map<ConnectionId, std::unordered_set<std::string>> watched_;
};

}  // namespace drun
