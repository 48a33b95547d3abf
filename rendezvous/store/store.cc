#include "rendezvous/store/store.h"

#include <optional>
#include <utility>

#include "rendezvous/base/text.h"
#include "rendezvous/store/wire.h"

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
  const Queue called = std::move(entry->second);  // iterators into it stay valid
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

// The waiter has left its queue. Removes its place; the last place gets its index.
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

namespace {

// As C's stoll: blanks, a sign, digits; ignores everything after them.
std::optional<std::int64_t> counter_value(std::string_view text) {
  const std::size_t start = text.find_first_not_of(" \t\n\v\f\r");
  if (start == text.npos) return std::nullopt;
  text.remove_prefix(start);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  return leading_number<std::int64_t>(text);
}

// Wraps around at overflow, without undefined behavior.
std::int64_t sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

// A value that counts as long as it is referenced.
struct Held {
  Held(std::string&& text, std::shared_ptr<StoreMemory> counted)
      : bytes(std::move(text)), memory(std::move(counted)) {
    memory->take(bytes.size() + kStoreEntryBytes);
  }
  ~Held() { memory->give(bytes.size() + kStoreEntryBytes); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  std::string bytes;
  const std::shared_ptr<StoreMemory> memory;
};

// A key in a message: short and printable.
std::string shown(std::string_view key) {
  std::string text = "\"";
  for (const char c : key.substr(0, 60)) text += c >= ' ' && c <= '~' ? c : '?';
  return text + (key.size() > 60 ? "...\"" : "\"");
}

}  // namespace

class Store::Turn {
 public:
  Turn(Store& store, ConnectionId from, std::vector<StoreReply>& replies)
      : store_(store), from_(from), replies_(replies) {}

  Result<void> operator()(store::Ping& ping) { return reply(store::Nonce{ping.nonce}); }

  Result<void> operator()(store::Set& set) {
    if (auto room = room_for("SET", cost_of(set.key, set.value.size())); !room) return room;
    put(std::move(set.key), std::move(set.value));
    return {};
  }

  Result<void> operator()(store::CompareSet& request) {
    const Blob current = find(request.key);
    if (!current && !request.expected.empty()) {
      return reply(Blob(std::make_shared<std::string>(std::move(request.expected))));
    }
    if (current && *current != request.expected) return reply(current);
    const std::size_t cost = cost_of(request.key, request.desired.size());
    if (auto room = room_for("COMPARE_SET", cost); !room) return room;
    return reply(put(std::move(request.key), std::move(request.desired)));
  }

  Result<void> operator()(store::Get& get) { return reply(find(get.key)); }

  Result<void> operator()(store::Add& add) {
    const std::optional<std::int64_t> count = counter(add.key);
    if (!count) return not_a_number("ADD", add.key);
    const std::int64_t number = sum(*count, add.delta);
    if (auto room = room_for("ADD", cost_of(add.key, kNumberBytes)); !room) return room;
    put(std::move(add.key), std::to_string(number));
    return reply(store::Number{number});
  }

  Result<void> operator()(store::Check& check) {
    const bool is_complete = missing(check.keys).empty();
    return reply(is_complete ? store::Signal::AllPresent : store::Signal::NotPresent);
  }

  Result<void> operator()(store::Wait& wait) {
    const std::vector<std::string_view> absent = missing(wait.keys);
    if (!absent.empty()) {
      std::size_t cost = 0;
      for (const std::string_view key : absent) cost += key.size() + kStoreEntryBytes;
      if (auto room = room_for("WAIT", cost); !room) return room;
      store_.waiters_.wait(from_, StoreWaiters::Kind::Key, absent);
      store_.count_waits();
      return {};
    }
    cancel_wait();
    return reply(store::Signal::StopWaiting);
  }

  Result<void> operator()(store::CancelWait&) {
    cancel_wait();
    return reply(store::Signal::WaitCanceled);
  }

  Result<void> operator()(store::NumKeys&) {
    return reply(store::Number{static_cast<std::int64_t>(store_.values_.size())});
  }

  Result<void> operator()(store::WatchKey& watch) {
    const std::size_t cost = watch_cost(watch.key);
    if (auto room = room_for("WATCH_KEY", cost); !room) return room;
    if (store_.watchers_[watch.key].insert(from_).second) store_.count_index(cost, 0);
    store_.watched_[from_].insert(std::move(watch.key));
    return reply(store::Signal::WatchRegistered);
  }

  Result<void> operator()(store::DeleteKey& request) {
    const auto found = store_.values_.find(request.key);
    if (found == store_.values_.end()) return reply(store::Number{0});
    const Blob before = std::move(found->second);
    store_.values_.erase(found);
    store_.keys_bytes_ -= request.key.size();
    store_.count_index(0, request.key.size() + kStoreEntryBytes);
    tell_watchers(store::Change::Deleted, request.key, before, nullptr);
    return reply(store::Number{1});
  }

  Result<void> operator()(store::Append& append) {
    const auto found = store_.values_.find(append.key);
    if (found == store_.values_.end()) {
      if (auto room = room_for("APPEND", cost_of(append.key, append.bytes.size())); !room)
        return room;
      put(std::move(append.key), std::move(append.bytes));
      return {};
    }
    Value& value = found->second;
    if (value->size() + append.bytes.size() > store_.limits_.value_bytes) {
      return Error{ErrorCode::Refused, "APPEND to " + shown(append.key) +
                                           " makes its value longer than " +
                                           std::to_string(store_.limits_.value_bytes) + " bytes"};
    }
    const bool is_watched = store_.watchers_.contains(append.key);
    const bool is_copied = is_watched || value.use_count() > 1;
    const std::size_t copied = is_copied ? value->size() + kStoreEntryBytes : 0;
    if (auto room = room_for("APPEND", copied + append.bytes.size()); !room) return room;
    const Blob before = is_watched ? value : nullptr;
    if (value.use_count() > 1) value = store_.hold(std::string(*value));
    value->append(append.bytes);
    store_.memory_->take(append.bytes.size());
    if (is_watched) tell_watchers(store::Change::Updated, append.key, before, value);
    wake_all(StoreWaiters::Kind::Key, append.key);
    return {};
  }

  Result<void> operator()(store::MultiGet& request) {
    store::Values values;
    values.blobs.reserve(request.keys.size());
    std::size_t cost = 0;
    for (const std::string& key : request.keys) {
      values.blobs.push_back(find(key));
      const std::size_t size = values.blobs.back() ? values.blobs.back()->size() : 0;
      cost += OutQueue::own_cost(size);
    }
    if (auto room = room_for("MULTI_GET", cost); !room) return room;
    return reply(std::move(values));
  }

  Result<void> operator()(store::MultiSet& request) {
    std::size_t cost = 0;
    for (const auto& [key, value] : request.entries)
      cost += key.size() + value.size() + 2 * kStoreEntryBytes;
    if (auto room = room_for("MULTI_SET", cost); !room) return room;
    for (auto& [key, value] : request.entries) put(std::move(key), std::move(value));
    return {};
  }

  Result<void> operator()(store::QueuePush& push) {
    const std::size_t cost = push.queue.size() + push.value.size() + 2 * kStoreEntryBytes;
    if (auto room = room_for("QUEUE_PUSH", cost); !room) return room;
    std::deque<Blob>& queue = store_.queues_[push.queue];
    if (queue.empty()) store_.count_index(push.queue.size() + kStoreEntryBytes, 0);
    queue.push_back(store_.hold(std::move(push.value)));
    std::vector<ConnectionId> done;
    store_.waiters_.wake_one(StoreWaiters::Kind::Key, push.queue, done);
    store_.count_waits();
    stop_waiting(done);
    return {};
  }

  Result<void> operator()(store::QueuePop& pop) {
    const auto found = store_.queues_.find(pop.queue);
    if (found == store_.queues_.end()) return reply(store::Popped{});
    std::deque<Blob>& queue = found->second;
    store::Popped popped{.length_before = static_cast<std::int64_t>(queue.size()),
                         .front = std::move(queue.front())};
    queue.pop_front();
    if (queue.empty()) {
      store_.queues_.erase(found);
      store_.count_index(0, pop.queue.size() + kStoreEntryBytes);
    }
    return reply(std::move(popped));
  }

  Result<void> operator()(store::QueueLen& request) {
    const auto found = store_.queues_.find(request.queue);
    const std::size_t length = found == store_.queues_.end() ? 0 : found->second.size();
    return reply(store::Number{static_cast<std::int64_t>(length)});
  }

  Result<void> operator()(store::ListKeys&) {
    // For a moment the data exists twice: as texts and as bytes.
    const std::size_t cost =
        2 * store_.keys_bytes_ + store_.values_.size() * (sizeof(std::string) + 8);
    if (auto room = room_for("LIST_KEYS", cost); !room) return room;
    store::Keys keys;
    keys.keys.reserve(store_.values_.size());
    for (const auto& [key, value] : store_.values_) keys.keys.push_back(key);
    return reply(std::move(keys));
  }

  Result<void> operator()(store::Barrier& barrier) {
    const std::optional<std::int64_t> count = counter(barrier.key);
    if (!count) return not_a_number("BARRIER", barrier.key);
    const std::int64_t arrived = sum(*count, 1);
    const std::size_t cost =
        cost_of(barrier.key, kNumberBytes) + barrier.key.size() + kStoreEntryBytes;
    if (auto room = room_for("BARRIER", cost); !room) return room;
    put(std::string(barrier.key), std::to_string(arrived));
    if (arrived < barrier.world_size) {
      store_.waiters_.wait(from_, StoreWaiters::Kind::Barrier, {barrier.key});
      store_.count_waits();
      return {};
    }
    cancel_wait();
    wake_all(StoreWaiters::Kind::Barrier, barrier.key);
    return reply(store::Signal::StopWaiting);
  }

 private:
  static constexpr std::size_t kNumberBytes = 20;  // the longest counter

  static std::size_t watch_cost(const std::string& key) {
    return 2 * (key.size() + kStoreEntryBytes);  // by key and by connection
  }

  // The additional memory for a value of that size that replaces the present one.
  std::size_t cost_of(const std::string& key, std::size_t value_bytes) const {
    const std::size_t cost = value_bytes + kStoreEntryBytes;
    const auto found = store_.values_.find(key);
    if (found == store_.values_.end()) return cost + key.size() + kStoreEntryBytes;
    const bool is_freed = found->second.use_count() == 1 && !store_.watchers_.contains(key);
    const std::size_t freed = is_freed ? found->second->size() + kStoreEntryBytes : 0;
    return cost > freed ? cost - freed : 0;
  }

  Result<void> room_for(const char* operation, std::size_t bytes) const {
    if (bytes == 0 || store_.memory_->has_room(bytes)) return {};
    return Error{ErrorCode::Refused, too_much_memory(operation, *store_.memory_)};
  }

  void cancel_wait() {
    store_.waiters_.cancel(from_);
    store_.count_waits();
  }

  Result<void> reply(store::Answer answer) {
    replies_.push_back({.to = from_, .answer = std::move(answer)});
    return {};
  }

  Result<void> not_a_number(std::string_view operation, std::string_view key) const {
    return Error{ErrorCode::Refused, std::string(operation) + " to " + shown(key) +
                                         ", whose value does not begin with a number"};
  }

  Blob find(std::string_view key) const {
    const auto found = store_.values_.find(key);
    return found == store_.values_.end() ? nullptr : found->second;
  }

  std::optional<std::int64_t> counter(std::string_view key) const {
    const auto found = store_.values_.find(key);
    return found == store_.values_.end() ? 0 : counter_value(*found->second);
  }

  // Returns views of the absent keys. A key with a nonempty queue counts as present.
  std::vector<std::string_view> missing(const std::vector<std::string>& keys) const {
    std::vector<std::string_view> absent;
    for (const std::string& key : keys) {
      if (!store_.values_.contains(key) && !store_.queues_.contains(key)) absent.push_back(key);
    }
    return absent;
  }

  Blob put(std::string&& key, std::string&& text) {
    Value value = store_.hold(std::move(text));
    const auto [entry, is_new] = store_.values_.try_emplace(std::move(key));
    if (is_new) {
      store_.keys_bytes_ += entry->first.size();
      store_.count_index(entry->first.size() + kStoreEntryBytes, 0);
    }
    const Blob before = std::exchange(entry->second, value);
    tell_watchers(is_new ? store::Change::Created : store::Change::Updated, entry->first, before,
                  value);
    wake_all(StoreWaiters::Kind::Key, entry->first);
    return value;
  }

  void wake_all(StoreWaiters::Kind kind, std::string_view key) {
    std::vector<ConnectionId> done;
    store_.waiters_.wake_all(kind, key, done);
    store_.count_waits();
    stop_waiting(done);
  }

  void stop_waiting(const std::vector<ConnectionId>& done) {
    for (const ConnectionId connection : done) {
      replies_.push_back({.to = connection, .answer = store::Signal::StopWaiting});
    }
  }

  void tell_watchers(store::Change change, const std::string& key, Blob before, Blob after) {
    if (store_.watchers_.empty()) return;
    const auto found = store_.watchers_.find(key);
    if (found == store_.watchers_.end()) return;
    for (const ConnectionId watcher : found->second) {
      replies_.push_back({.to = watcher,
                          .answer = store::Changed{
                              .change = change, .key = key, .before = before, .after = after}});
    }
  }

  Store& store_;
  const ConnectionId from_;
  std::vector<StoreReply>& replies_;
};

Result<void> Store::apply(ConnectionId from, store::Request&& request,
                          std::vector<StoreReply>& replies) {
  return std::visit(Turn(*this, from, replies), request);
}

Store::Value Store::hold(std::string&& text) const {
  const auto held = std::make_shared<Held>(std::move(text), memory_);
  return {held, &held->bytes};
}

void Store::count_index(std::size_t add, std::size_t remove) {
  memory_->change(index_bytes_, index_bytes_ + add - remove);
}

void Store::forget(ConnectionId connection) {
  waiters_.cancel(connection);
  count_waits();
  const auto watched = watched_.find(connection);
  if (watched == watched_.end()) return;
  for (const std::string& key : watched->second) {
    const auto watchers = watchers_.find(key);
    watchers->second.erase(connection);
    if (watchers->second.empty()) watchers_.erase(watchers);
    count_index(0, 2 * (key.size() + kStoreEntryBytes));
  }
  watched_.erase(watched);
}

void Store::clear() {
  values_.clear();
  queues_.clear();
  waiters_.clear();
  watchers_.clear();
  watched_.clear();
  keys_bytes_ = 0;
  count_index(0, index_bytes_);
  count_waits();
}

}  // namespace drun
