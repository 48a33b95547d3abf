#include "rendezvous/store/store.h"

#include <charconv>
#include <optional>
#include <utility>

namespace drun {
namespace {

// As C's stoll reads it: blanks, a sign, digits, and whatever follows is ignored.
std::optional<std::int64_t> leading_number(std::string_view text) {
  const std::size_t start = text.find_first_not_of(" \t\n\v\f\r");
  if (start == text.npos) return std::nullopt;
  text.remove_prefix(start);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  std::int64_t number = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (ec != std::errc()) return std::nullopt;
  return number;
}

// Around the corner like the machine's own addition, and without undefined behaviour.
std::int64_t sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

// What a key looks like in a message: short, and printable.
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
    put(std::move(set.key), std::move(set.value));
    return {};
  }

  Result<void> operator()(store::CompareSet& request) {
    const Blob current = find(request.key);
    if (!current && !request.expected.empty()) {
      return reply(Blob(std::make_shared<std::string>(std::move(request.expected))));
    }
    if (current && *current != request.expected) return reply(current);
    return reply(put(std::move(request.key), std::move(request.desired)));
  }

  Result<void> operator()(store::Get& get) { return reply(find(get.key)); }

  Result<void> operator()(store::Add& add) {
    const std::optional<std::int64_t> count = counter(add.key);
    if (!count) return not_a_number("ADD", add.key);
    const std::int64_t number = sum(*count, add.delta);
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
      store_.waiters_.wait(from_, StoreWaiters::Kind::Key, absent);
      return {};
    }
    store_.waiters_.cancel(from_);
    return reply(store::Signal::StopWaiting);
  }

  Result<void> operator()(store::CancelWait&) {
    store_.waiters_.cancel(from_);
    return reply(store::Signal::WaitCanceled);
  }

  Result<void> operator()(store::NumKeys&) {
    return reply(store::Number{static_cast<std::int64_t>(store_.values_.size())});
  }

  Result<void> operator()(store::WatchKey& watch) {
    store_.watchers_[watch.key].insert(from_);
    store_.watched_[from_].insert(std::move(watch.key));
    return reply(store::Signal::WatchRegistered);
  }

  Result<void> operator()(store::DeleteKey& request) {
    const auto found = store_.values_.find(request.key);
    if (found == store_.values_.end()) return reply(store::Number{0});
    const Blob before = std::move(found->second);
    store_.values_.erase(found);
    tell_watchers(store::Change::Deleted, request.key, before, nullptr);
    return reply(store::Number{1});
  }

  Result<void> operator()(store::Append& append) {
    const auto found = store_.values_.find(append.key);
    if (found == store_.values_.end()) {
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
    const Blob before = is_watched ? value : nullptr;
    if (value.use_count() > 1) value = std::make_shared<std::string>(*value);
    value->append(append.bytes);
    if (is_watched) tell_watchers(store::Change::Updated, append.key, before, value);
    wake_all(StoreWaiters::Kind::Key, append.key);
    return {};
  }

  Result<void> operator()(store::MultiGet& request) {
    store::Values values;
    values.blobs.reserve(request.keys.size());
    for (const std::string& key : request.keys) values.blobs.push_back(find(key));
    return reply(std::move(values));
  }

  Result<void> operator()(store::MultiSet& request) {
    for (auto& [key, value] : request.entries) put(std::move(key), std::move(value));
    return {};
  }

  Result<void> operator()(store::QueuePush& push) {
    store_.queues_[push.queue].push_back(std::make_shared<std::string>(std::move(push.value)));
    std::vector<ConnectionId> done;
    store_.waiters_.wake_one(StoreWaiters::Kind::Key, push.queue, done);
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
    if (queue.empty()) store_.queues_.erase(found);
    return reply(std::move(popped));
  }

  Result<void> operator()(store::QueueLen& request) {
    const auto found = store_.queues_.find(request.queue);
    const std::size_t length = found == store_.queues_.end() ? 0 : found->second.size();
    return reply(store::Number{static_cast<std::int64_t>(length)});
  }

  Result<void> operator()(store::ListKeys&) {
    store::Keys keys;
    keys.keys.reserve(store_.values_.size());
    for (const auto& [key, value] : store_.values_) keys.keys.push_back(key);
    return reply(std::move(keys));
  }

  Result<void> operator()(store::Barrier& barrier) {
    const std::optional<std::int64_t> count = counter(barrier.key);
    if (!count) return not_a_number("BARRIER", barrier.key);
    const std::int64_t arrived = sum(*count, 1);
    put(std::string(barrier.key), std::to_string(arrived));
    if (arrived < barrier.world_size) {
      store_.waiters_.wait(from_, StoreWaiters::Kind::Barrier, {barrier.key});
      return {};
    }
    store_.waiters_.cancel(from_);
    wake_all(StoreWaiters::Kind::Barrier, barrier.key);
    return reply(store::Signal::StopWaiting);
  }

 private:
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
    return found == store_.values_.end() ? 0 : leading_number(*found->second);
  }

  // Looks into `keys`. A queue that holds something counts as present.
  std::vector<std::string_view> missing(const std::vector<std::string>& keys) const {
    std::vector<std::string_view> absent;
    for (const std::string& key : keys) {
      if (!store_.values_.contains(key) && !store_.queues_.contains(key)) absent.push_back(key);
    }
    return absent;
  }

  Blob put(std::string&& key, std::string&& text) {
    Value value = std::make_shared<std::string>(std::move(text));
    const auto [entry, is_new] = store_.values_.try_emplace(std::move(key));
    const Blob before = std::exchange(entry->second, value);
    tell_watchers(is_new ? store::Change::Created : store::Change::Updated, entry->first, before,
                  value);
    wake_all(StoreWaiters::Kind::Key, entry->first);
    return value;
  }

  void wake_all(StoreWaiters::Kind kind, std::string_view key) {
    std::vector<ConnectionId> done;
    store_.waiters_.wake_all(kind, key, done);
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

void Store::forget(ConnectionId connection) {
  waiters_.cancel(connection);
  const auto watched = watched_.find(connection);
  if (watched == watched_.end()) return;
  for (const std::string& key : watched->second) {
    const auto watchers = watchers_.find(key);
    watchers->second.erase(connection);
    if (watchers->second.empty()) watchers_.erase(watchers);
  }
  watched_.erase(watched);
}

void Store::clear() {
  values_.clear();
  queues_.clear();
  waiters_.clear();
  watchers_.clear();
  watched_.clear();
}

}  // namespace drun
