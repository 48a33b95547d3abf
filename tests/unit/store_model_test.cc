#include <deque>
#include <map>
#include <optional>
#include <set>

#include "rendezvous/base/result.h"
#include "rendezvous/store/store.h"
#include "rendezvous/store/wire.h"
#include "tests/support/answer_bytes.h"
#include "tests/support/catch.h"
#include "tests/support/store_requests.h"

namespace drun {
namespace {

using SentInTurn = std::multimap<ConnectionId, std::string>;

// A simple model of the store: maps, and loops over all waits.
class Model {
 public:
  // Returns nullopt if the request is refused.
  std::optional<SentInTurn> ask(ConnectionId from, const store::Request& request) {
    sent_.clear();
    from_ = from;
    if (!std::visit([this](const auto& r) { return serve(r); }, request)) return std::nullopt;
    return sent_;
  }
  void forget(ConnectionId connection) {
    std::erase_if(waits_, [=](const Waiting& wait) { return wait.connection == connection; });
  }

 private:
  struct Waiting {
    ConnectionId connection = 0;
    std::multiset<std::string> missing;
    bool is_barrier = false;
  };

  bool serve(const store::Ping& r) { return bytes(4, r.nonce); }
  bool serve(const store::Set& r) { return put(r.key, r.value); }
  bool serve(const store::CompareSet& r) {
    const auto found = values_.find(r.key);
    if (found == values_.end() && !r.expected.empty()) return blob(r.expected);
    if (found != values_.end() && found->second != r.expected) return blob(found->second);
    put(r.key, r.desired);
    return blob(r.desired);
  }
  bool serve(const store::Get& r) { return blob(value(r.key)); }
  bool serve(const store::Add& r) {
    const std::optional<std::int64_t> old = number(r.key);
    if (!old) return false;
    put(r.key, std::to_string(*old + r.delta));
    return bytes(8, static_cast<std::uint64_t>(*old + r.delta));
  }
  bool serve(const store::Check& r) { return bytes(1, missing(r.keys).empty() ? 0 : 1); }
  bool serve(const store::Wait& r) {
    forget(from_);
    if (missing(r.keys).empty()) return bytes(1, 0);
    waits_.push_back({.connection = from_, .missing = missing(r.keys)});
    return true;
  }
  bool serve(const store::CancelWait&) {
    forget(from_);
    return bytes(1, 1);
  }
  bool serve(const store::NumKeys&) { return bytes(8, values_.size()); }
  bool serve(const store::WatchKey&) { return false; }
  bool serve(const store::DeleteKey& r) { return bytes(8, values_.erase(r.key)); }
  bool serve(const store::Append& r) { return put(r.key, value(r.key) + r.bytes); }
  bool serve(const store::MultiGet& r) {
    std::string all;
    for (const std::string& key : r.keys) put_text(all, value(key));
    sent_.emplace(from_, all);
    return true;
  }
  bool serve(const store::MultiSet& r) {
    for (const auto& [key, text] : r.entries) put(key, text);
    return true;
  }
  bool serve(const store::QueuePush& r) {
    queues_[r.queue].push_back(r.value);
    for (Waiting& wait : waits_) {
      if (wait.is_barrier || !wait.missing.contains(r.queue)) continue;
      wait.missing.erase(wait.missing.find(r.queue));
      break;
    }
    wake();
    return true;
  }
  bool serve(const store::QueuePop& r) {
    std::deque<std::string>& queue = queues_[r.queue];
    std::string answer;
    put_u64(answer, queue.size());
    if (!queue.empty()) {
      put_text(answer, queue.front());
      queue.pop_front();
    }
    sent_.emplace(from_, answer);
    return true;
  }
  bool serve(const store::QueueLen& r) { return bytes(8, queues_[r.queue].size()); }
  bool serve(const store::ListKeys&) { return bytes(8, values_.size()); }
  bool serve(const store::Barrier& r) {
    const std::optional<std::int64_t> old = number(r.key);
    if (!old) return false;
    put(r.key, std::to_string(*old + 1));
    forget(from_);
    waits_.push_back({.connection = from_, .missing = {r.key}, .is_barrier = true});
    if (*old + 1 < r.world_size) return true;
    for (Waiting& wait : waits_) {
      if (wait.is_barrier && wait.missing.contains(r.key)) wait.missing.clear();
    }
    wake();
    return true;
  }

  bool put(const std::string& key, const std::string& text) {
    values_[key] = text;
    for (Waiting& wait : waits_) {
      if (!wait.is_barrier) wait.missing.erase(key);
    }
    wake();
    return true;
  }
  void wake() {
    for (const Waiting& wait : waits_) {
      if (wait.missing.empty()) sent_.emplace(wait.connection, std::string(1, '\0'));
    }
    std::erase_if(waits_, [](const Waiting& wait) { return wait.missing.empty(); });
  }
  std::multiset<std::string> missing(const std::vector<std::string>& keys) {
    std::multiset<std::string> absent;
    for (const std::string& key : keys) {
      if (!values_.contains(key) && queues_[key].empty()) absent.insert(key);
    }
    return absent;
  }
  std::string value(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? "" : found->second;
  }
  std::optional<std::int64_t> number(const std::string& key) const {
    if (!values_.contains(key)) return 0;
    try {
      return std::stoll(value(key));
    } catch (const std::exception&) {
      return std::nullopt;
    }
  }
  bool blob(const std::string& text) {
    std::string answer;
    put_text(answer, text);
    sent_.emplace(from_, answer);
    return true;
  }
  bool bytes(std::size_t size, std::uint64_t number) {
    std::string answer;
    put_u64(answer, number);
    sent_.emplace(from_, answer.substr(0, size));
    return true;
  }

  std::map<std::string, std::string> values_;
  std::map<std::string, std::deque<std::string>> queues_;
  std::vector<Waiting> waits_;  // in the order of arrival
  SentInTurn sent_;
  ConnectionId from_ = 0;
};

std::string bytes_of(const store::Answer& answer) {
  if (const auto* keys = std::get_if<store::Keys>(&answer)) {
    std::string
        count;  // only the count: the order of keys is unspecified, and other tests check them
    put_u64(count, keys->keys.size());
    return count;
  }
  return test::answer_bytes(answer);
}

}  // namespace

TEST_CASE("the store matches a simple model for random requests") {
  const std::uint64_t seed = std::random_device{}();
  CAPTURE(seed);
  Random random(seed);
  for (int run = 0; run < 40; ++run) {
    Store store{StoreLimits{}};
    Model model;
    for (int i = 0; i < 500; ++i) {
      const ConnectionId from = below(random, 5);
      CAPTURE(run, i, from);
      if (below(random, 40) == 0) {
        store.forget(from);
        model.forget(from);
        continue;
      }
      store::Request request = random_request(random);
      const std::optional<SentInTurn> expected = model.ask(from, request);
      std::vector<StoreReply> replies;
      const Result<void> result = store.apply(from, std::move(request), replies);
      REQUIRE(result.has_value() == expected.has_value());
      if (!expected) continue;
      // Replies to one connection are in order; the order between connections is unspecified.
      SentInTurn sent;
      for (const StoreReply& reply : replies) sent.emplace(reply.to, bytes_of(reply.answer));
      REQUIRE(sent == *expected);
    }
  }
}

}  // namespace drun
