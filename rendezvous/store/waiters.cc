#include "rendezvous/store/waiters.h"

#include <utility>

namespace drun {

void StoreWaiters::wait(ConnectionId connection, Kind kind,
                        const std::vector<std::string_view>& keys) {
  cancel(connection);
  Wait& wait = waits_[connection];
  wait.connection = connection;
  wait.places.reserve(keys.size());
  for (const std::string_view key : keys) {
    Queues& all = queues(kind);
    auto entry = all.find(key);
    if (entry == all.end()) entry = all.emplace(std::string(key), Queue{}).first;
    Queue& queue = entry->second;
    const auto at = queue.insert(queue.end(), {.wait = &wait, .place = wait.places.size()});
    size_bytes_ += cost_of(key);
    wait.places.push_back({.queues = &all, .entry = &*entry, .at = at});
  }
}

void StoreWaiters::cancel(ConnectionId connection) {
  const auto found = waits_.find(connection);
  if (found == waits_.end()) return;
  for (const Place& place : found->second.places) {
    Queue& queue = place.entry->second;
    size_bytes_ -= cost_of(place.entry->first);
    queue.erase(place.at);
    if (queue.empty()) place.queues->erase(place.queues->find(place.entry->first));
  }
  waits_.erase(found);
}

void StoreWaiters::wake_all(Kind kind, std::string_view key, std::vector<ConnectionId>& done) {
  Queues& all = queues(kind);
  if (all.empty()) return;
  const auto entry = all.find(key);
  if (entry == all.end()) return;
  const Queue called = std::move(entry->second);  // iterators into it stay good
  all.erase(entry);
  for (const Waiter& waiter : called) call(waiter, key, done);
}

void StoreWaiters::wake_one(Kind kind, std::string_view key, std::vector<ConnectionId>& done) {
  Queues& all = queues(kind);
  const auto entry = all.find(key);
  if (entry == all.end()) return;
  const Waiter first = entry->second.front();
  entry->second.pop_front();
  if (entry->second.empty()) all.erase(entry);
  call(first, key, done);
}

void StoreWaiters::clear() {
  waits_.clear();
  key_queues_.clear();
  barrier_queues_.clear();
  size_bytes_ = 0;
}

// The waiter has left its queue: its place goes too, and the last place takes its number.
void StoreWaiters::call(const Waiter& waiter, std::string_view key,
                        std::vector<ConnectionId>& done) {
  size_bytes_ -= cost_of(key);
  Wait& wait = *waiter.wait;
  const std::size_t freed = waiter.place;
  if (freed + 1 != wait.places.size()) {
    wait.places[freed] = wait.places.back();
    wait.places[freed].at->place = freed;
  }
  wait.places.pop_back();
  if (!wait.places.empty()) return;
  done.push_back(wait.connection);
  waits_.erase(wait.connection);
}

}  // namespace drun
