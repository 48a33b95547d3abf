// KeyStore over the client of the TCPStore protocol.
#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "drun/error.h"
#include "drun/key_store.h"
#include "rendezvous/store/client.h"
#include "worker_lib/base/deadline.h"

namespace drun {
namespace {

[[noreturn]] void raise(const Error& error) {
  const bool is_timeout = error.code == ErrorCode::Timeout;
  throw WorkerError({.kind = is_timeout ? WorkerError::Kind::Timeout : WorkerError::Kind::Store,
                     .message = error.message});
}

// The answer itself is late: only the store was being waited for.
[[noreturn]] void raise_silent(const Error& error) {
  throw WorkerError({.kind = WorkerError::Kind::Store, .message = error.message});
}

[[noreturn]] void refuse(const std::string& key, const std::string& why) {
  constexpr std::size_t kShownBytes = 100;
  const std::string shown = key.size() > kShownBytes ? key.substr(0, kShownBytes) + "..." : key;
  throw WorkerError(
      {.kind = WorkerError::Kind::Usage, .message = "the store's key \"" + shown + "\": " + why});
}

// A server closes the connection of a client that exceeds its limits, and does not answer why.
void check_sizes(std::span<const std::string> keys,
                 std::initializer_list<std::string_view> values = {}) {
  constexpr StoreLimits kLimits;
  const auto too_large = [](const char* what, std::size_t bytes, std::size_t most) {
    return std::string(what) + " of " + std::to_string(bytes) +
           " bytes is too large; a store takes at most " + std::to_string(most);
  };
  for (const std::string& key : keys) {
    constexpr std::size_t kMost = kLimits.key_bytes - 1;  // after a "/"
    if (key.size() > kMost) refuse(key, too_large("a key", key.size(), kMost));
  }
  for (const std::string_view value : values) {
    if (value.size() > kLimits.value_bytes)
      refuse(keys.front(), too_large("a value", value.size(), kLimits.value_bytes));
  }
}

// Operations take turns on the first connection. While a get or wait holds it, others take a
// further one, which is opened then and stays. Gets and waits leave one to the other operations: if
// all others are held, they look for their keys there from time to time.
class TcpKeyStore final : public KeyStore {
 public:
  TcpKeyStore(StoreClient client, StoreClient::Options options) : options_(std::move(options)) {
    connections_[0] = std::make_unique<StoreClient>(std::move(client));
  }

  void set(const std::string& key, const std::string& value, Milliseconds timeout) override {
    check_sizes(std::span(&key, 1), {value});
    const Turn turn(*this, timeout);
    auto done = turn.client().set(key, value);
    // It is not answered: it would be overtaken by what this thread does on the first one next.
    if (done && !turn.is_on_first()) {
      if (const auto is_there = turn.client().check(std::span(&key, 1)); !is_there) {
        done = is_there.error();
      }
    }
    if (!done) turn.raise_silent(done.error());
  }
  std::string get(const std::string& key, Milliseconds timeout) override {
    auto value =
        await(std::span(&key, 1), timeout, [&](StoreClient& client) { return client.get(key); });
    if (!value) raise(value.error());
    return *std::move(value);
  }
  std::int64_t add(const std::string& key, std::int64_t delta, Milliseconds timeout) override {
    check_sizes(std::span(&key, 1));
    const Turn turn(*this, timeout);
    const auto sum = turn.client().add(key, delta);
    if (!sum) turn.raise_silent(sum.error());
    return *sum;
  }
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired, Milliseconds timeout) override {
    check_sizes(std::span(&key, 1), {expected, desired});
    const Turn turn(*this, timeout);
    auto value = turn.client().compare_set(key, expected, desired);
    if (!value) turn.raise_silent(value.error());
    return *std::move(value);
  }
  void wait(const std::vector<std::string>& keys, Milliseconds timeout) override {
    const auto done = await(keys, timeout, [&](StoreClient& client) { return client.wait(keys); });
    if (!done) raise(done.error());
  }
  bool has(const std::string& key, Milliseconds timeout) override {
    check_sizes(std::span(&key, 1));
    const Turn turn(*this, timeout);
    const auto is_there = turn.client().check(std::span(&key, 1));
    if (!is_there) turn.raise_silent(is_there.error());
    return *is_there;
  }
  void remove(const std::string& key, Milliseconds timeout) override {
    check_sizes(std::span(&key, 1));
    const Turn turn(*this, timeout);
    if (const auto was_there = turn.client().remove(key); !was_there)
      turn.raise_silent(was_there.error());
  }

 private:
  using Deadline = std::chrono::steady_clock::time_point;
  static constexpr std::size_t kMostConnections = 4;
  static constexpr std::size_t kMostWaiting = kMostConnections - 1;
  static constexpr char kAllInUse[] = "other threads were using every connection to the store";

  // A connection for one operation.
  class Turn {
   public:
    // Throws Store when the operation's time is over before a connection is free.
    Turn(TcpKeyStore& store, Milliseconds timeout)
        : Turn(store, worker::deadline_in(timeout), std::nullopt) {}
    // `place`: of a connection that was taken.
    Turn(TcpKeyStore& store, Deadline deadline, std::optional<std::size_t> place)
        : store_(store), place_(place ? *place : store.need(deadline)) {
      std::unique_ptr<StoreClient>& client = store_.connections_[place_];
      if (!client) {
        StoreClient::Options options = store_.options_;
        options.timeout = worker::left_until(deadline);
        auto connected = StoreClient::connect(options);
        if (!connected) {
          store_.give_back(place_);
          drun::raise_silent(connected.error());
        }
        client = std::make_unique<StoreClient>(*std::move(connected));
      }
      client->set_timeout(worker::left_until(deadline));
    }
    ~Turn() { store_.give_back(place_); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    StoreClient& client() const { return *store_.connections_[place_]; }
    bool is_on_first() const { return place_ == 0; }
    [[noreturn]] void raise_silent(const Error& error) const {
      drop_if_closed_by(error);
      drun::raise_silent(error);
    }
    // As the action, a get or wait, ended. Not a timeout if the store itself was silent.
    template <typename Action>
    std::invoke_result_t<Action, StoreClient&> run(const Action& action) const {
      auto result = action(client());
      if (!result && drop_if_closed_by(result.error()))
        return Error{ErrorCode::Unreachable, result.error().message};
      return result;
    }
    // If a late answer has closed the connection, the next operation opens another one.
    bool drop_if_closed_by(const Error& error) const {
      const bool is_silent = error.code == ErrorCode::Timeout && client().is_closed();
      if (is_silent) store_.connections_[place_].reset();
      return is_silent;
    }

   private:
    TcpKeyStore& store_;
    const std::size_t place_;
  };

  // Runs a get or wait for these keys.
  template <typename Action>
  auto await(std::span<const std::string> keys, Milliseconds timeout, const Action& action)
      -> std::invoke_result_t<Action, StoreClient&> {
    check_sizes(keys);
    constexpr Milliseconds kMostPause{100};
    const Deadline deadline = worker::deadline_in(timeout);
    for (Milliseconds pause{10};; pause = std::min(2 * pause, kMostPause)) {
      const Deadline now = Deadline::clock::now();
      const bool is_last = deadline - now < 2 * pause;
      std::optional<std::size_t> place = take(kMostWaiting, is_last ? deadline : now + pause);
      if (place) return Turn(*this, deadline, place).run(action);
      place = take(kMostConnections, deadline);
      if (!place) return Error{ErrorCode::Timeout, kAllInUse};
      const Turn turn(*this, deadline, place);
      if (is_last) return turn.run(action);
      const auto are_there = turn.client().check(keys);
      if (!are_there) {
        turn.drop_if_closed_by(are_there.error());
        return are_there.error();
      }
      if (*are_there) return turn.run(action);
    }
  }

  // One of the first `places`, once it is free; absent if the deadline passes before.
  std::optional<std::size_t> take(std::size_t places, Deadline deadline) {
    std::unique_lock lock(mutex_);
    std::size_t free = 0;
    const bool has_one = given_back_.wait_until(lock, deadline, [&] {
      for (free = 0; free < places && is_taken_[free];) ++free;
      return free < places;
    });
    if (!has_one) return std::nullopt;
    is_taken_[free] = true;
    return free;
  }
  std::size_t need(Deadline deadline) {
    if (const auto place = take(kMostConnections, deadline)) return *place;
    drun::raise_silent({ErrorCode::Timeout, kAllInUse});
  }
  void give_back(std::size_t place) {
    {
      const std::lock_guard lock(mutex_);
      is_taken_[place] = false;
    }
    given_back_.notify_all();
  }

  const StoreClient::Options options_;
  std::mutex mutex_;  // of is_taken_
  std::condition_variable given_back_;
  std::array<bool, kMostConnections> is_taken_{};
  std::array<std::unique_ptr<StoreClient>, kMostConnections> connections_;
};

}  // namespace

std::shared_ptr<KeyStore> connect_key_store(const std::string& host, std::uint16_t port,
                                            KeyStore::Milliseconds timeout) {
  StoreClient::Options options;
  options.endpoint = {host, port};
  options.timeout = timeout;
  auto client = StoreClient::connect(options);
  if (!client) raise_silent(client.error());
  // A Python program that hosts this store may be counting its ranks.
  if (const auto count = client->announce(); !count) raise_silent(count.error());
  options.dialect = client->dialect();
  return std::make_shared<TcpKeyStore>(*std::move(client), std::move(options));
}

}  // namespace drun
