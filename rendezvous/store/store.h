// core. The store of a round: keys and values, who waits for them, queues, barriers and watchers.
//
// Requests of many connections go in, one at a time; replies come out, for the connection that
// asked and for those whose waiting ended by it.
//
// Cost:    a request costs its own keys and the waiters it wakes; `forget` costs the keys that this
//          connection waits for or watches. Values are moved in and shared out, not copied.
// Owner:   StoreService.   Thread: any, one at a time.
// Errors:  apply: Refused if the request cannot be served (ADD to something that is not a number,
//          a value grown beyond the limit, no room in store.h's count): then nothing was changed,
//          no reply was made, and the connection should be closed. Never throws but for lack of
//          memory.
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

// core. How much memory a store's clients make it keep, and how much they may: --store-memory.
//
// Rule:    every key, value, queue's entry, wait for a key and watch counts as its bytes and 128.
//          What has been read and is not a whole request yet, and what is to be sent, counts as its
//          bytes. A value counts as long as anybody holds it, an answer that is not sent included.
// Cost:    O(1) each.
// Owner:   Store; values hold on to it.   Thread: any, one at a time.

namespace drun {

constexpr std::size_t kStoreEntryBytes = 128;

class StoreMemory {
 public:
  explicit StoreMemory(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  bool has_room(std::size_t bytes) const { return !is_over() && bytes <= limit_bytes_ - used_; }
  bool is_over() const { return used_ > limit_bytes_; }
  void take(std::size_t bytes) { used_ += bytes; }
  void give(std::size_t bytes) { used_ -= bytes; }
  // Something that changes its size.
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

// Why a client loses its connection: "SET: ...".
inline std::string too_much_memory(const std::string& deed, const StoreMemory& memory) {
  return deed + " would take the store beyond its limit of " +
         std::to_string(memory.limit_bytes()) + " bytes; raise --store-memory";
}

}  // namespace drun

// core. Who waits for which keys: found by key when one is made, by connection when one gives up.
//
// A connection has one wait at most: a new one takes the place of the old. A wait is a list of
// places, one in the queue of each key it misses, and is over when the last was called.
//
//   key "a":  [conn 1] [conn 7] [conn 9]        wake_all: O(its waiters)
//   key "b":  [conn 7]                          cancel:   O(own places), not O(others' in the
//   queue)
//
// Owner:   Store.   Thread: any, one at a time.   Errors: none.

namespace drun {

class StoreWaiters {
 public:
  // A barrier's key may be waited for as a key, too, which ends earlier.
  enum class Kind { Key, Barrier };

  // `keys`, one or more, may repeat: then each must be called as often.
  void wait(ConnectionId connection, Kind kind, const std::vector<std::string_view>& keys);

  // Does nothing if it does not wait.
  void cancel(ConnectionId connection);

  // Calls everybody who waits for `key`, or the one who has waited longest; connections whose wait
  // is over with that are appended to `done`.
  void wake_all(Kind kind, std::string_view key, std::vector<ConnectionId>& done);
  void wake_one(Kind kind, std::string_view key, std::vector<ConnectionId>& done);

  void clear();
  std::size_t count() const { return waits_.size(); }
  // As store.h counts.
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
    Queues::value_type* entry = nullptr;  // stays where it is until erased
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

}  // namespace drun

namespace drun {

class Store {
 public:
  explicit Store(const StoreLimits& limits)
      : limits_(limits), memory_(std::make_shared<StoreMemory>(limits.memory_bytes)) {}
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Replies are appended to `replies`; those for one connection are in the order to be sent.
  Result<void> apply(ConnectionId from, store::Request&& request, std::vector<StoreReply>& replies);

  // The connection is gone: so are its wait and its watches.
  void forget(ConnectionId connection);

  // Everything, waits and watches included; nobody is told.
  void clear();

  std::size_t key_count() const { return values_.size(); }
  std::size_t waiting_count() const { return waiters_.count(); }
  // What connections hold besides is to be counted there, too.
  StoreMemory& memory() { return *memory_; }

 private:
  using Value = std::shared_ptr<std::string>;  // changed in place only while nobody shares it
  class Turn;                                  // one request being served

  Value hold(std::string&& text) const;
  void count_index(std::size_t add, std::size_t remove);
  void count_waits() { memory_->change(waits_bytes_, waiters_.size_bytes()); }

  const StoreLimits limits_;
  const std::shared_ptr<StoreMemory> memory_;
  std::size_t index_bytes_ = 0;  // keys of values, of queues and of watches
  std::size_t keys_bytes_ = 0;   // keys of values alone, without what counts for each
  std::size_t waits_bytes_ = 0;
  TextMap<Value> values_;
  TextMap<std::deque<Blob>> queues_;  // none of them empty
  StoreWaiters waiters_;
  TextMap<std::unordered_set<ConnectionId>> watchers_;  // none of them empty
  std::unordered_map<ConnectionId, std::unordered_set<std::string>> watched_;
};

}  // namespace drun
