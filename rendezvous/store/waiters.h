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
#pragma once

#include <cstddef>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rendezvous/store/memory.h"
#include "rendezvous/store/message.h"
#include "rendezvous/text_map.h"

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
  // As memory.h counts.
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
