// core. The store of a round: keys and values, who waits for them, queues, barriers and watchers.
//
// Requests of many connections go in, one at a time; replies come out, for the connection that
// asked and for those whose waiting ended by it.
//
// Cost:    a request costs its own keys and the waiters it wakes; `forget` costs the keys that this
//          connection waits for or watches. Values are moved in and shared out, not copied.
// Owner:   StoreService.   Thread: any, one at a time.
// Errors:  apply: Refused if the request cannot be served (ADD to something that is not a number,
//          a value grown beyond the limit, no room in memory.h's count): then nothing was changed,
//          no reply was made, and the connection should be closed. Never throws but for lack of
//          memory.
// Source:  TCPStore's libuv server; differences are listed in rendezvous/WIRE.md.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "rendezvous/result.h"
#include "rendezvous/store/memory.h"
#include "rendezvous/store/message.h"
#include "rendezvous/store/waiters.h"
#include "rendezvous/text_map.h"

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
