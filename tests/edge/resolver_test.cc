// Tests name lookups that are slow, fail, or never end.
#include "rendezvous/net/resolver.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <set>

#include "rendezvous/net/connector.h"
#include "rendezvous/net/deadline_timer.h"
#include "tests/support/catch.h"
#include "tests/support/event_loop.h"
#include "tests/support/raw_socket.h"

namespace drun::test {
namespace {

using namespace rendezvous;
using namespace std::chrono_literals;

// Lookups that end when the test allows it.
class Names {
 public:
  std::shared_ptr<LookupThreads> threads(std::size_t most = LookupThreads::kMostThreads) {
    return std::make_shared<LookupThreads>(
        [state = state_](const std::string& host) -> Addresses {
          std::unique_lock lock(state->mutex);
          ++state->lookups;
          ++state->running;
          state->most_running = std::max(state->most_running, state->running);
          state->changed.wait(lock, [&] { return state->answered.contains(host); });
          --state->running;
          if (host == "unknown") return Error{ErrorCode::Unreachable, "no such name"};
          return std::vector{asio::ip::make_address("127.0.0.1")};
        },
        most);
  }
  void answer(const std::string& host) {
    const std::lock_guard lock(state_->mutex);
    state_->answered.insert(host);
    state_->changed.notify_all();
  }
  void withdraw(const std::string& host) {
    const std::lock_guard lock(state_->mutex);
    state_->answered.erase(host);
  }
  int lookups() const { return read(state_->lookups); }
  int running() const { return read(state_->running); }
  int most_running() const { return read(state_->most_running); }

 private:
  int read(const int& number) const {
    const std::lock_guard lock(state_->mutex);
    return number;
  }
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::set<std::string> answered;
    int lookups = 0;
    int running = 0;
    int most_running = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace

TEST_CASE("a retry gets the result of the lookup that its canceled first try had started") {
  asio::io_context io{1};
  Names names;
  Resolver resolver(io, names.threads());
  const bool is_answered_between = GENERATE(false, true);
  resolver.start("slow", [](const Addresses&) { FAIL("it was canceled"); });
  REQUIRE(run_until(io, [&] { return names.running() == 1; }));
  resolver.cancel();
  if (is_answered_between) {
    names.answer("slow");
    REQUIRE(run_until(io, [&] { return names.running() == 0; }));
  }
  std::optional<Addresses> result;
  resolver.start("slow", [&](const Addresses& found) { result = found; });
  names.answer("slow");
  REQUIRE(run_until(io, [&] { return result.has_value(); }));
  REQUIRE(result->has_value());
  CHECK((*result)->size() == 1);
  CHECK(names.lookups() == 1);
}

TEST_CASE("a slow name delays no other name, and its callers share one lookup") {
  asio::io_context io{1};
  Names names;
  const auto threads = names.threads();
  Resolver one(io, threads);
  Resolver two(io, threads);
  Resolver other(io, threads);
  int results = 0;
  std::optional<Addresses> of_other;
  one.start("slow", [&](const Addresses&) { ++results; });
  two.start("slow", [&](const Addresses&) { ++results; });
  other.start("unknown", [&](const Addresses& found) { of_other = found; });
  names.answer("unknown");
  REQUIRE(run_until(io, [&] { return of_other.has_value(); }));
  REQUIRE_FALSE(of_other->has_value());
  CHECK(of_other->error().message == "no such name");
  CHECK(results == 0);
  names.answer("slow");
  REQUIRE(run_until(io, [&] { return results == 2; }));
  CHECK(names.lookups() == 2);
}

TEST_CASE("the number of lookup threads is limited, and further names wait for a free one") {
  asio::io_context io{1};
  Names names;
  const auto threads = names.threads(2);
  std::vector<std::unique_ptr<Resolver>> resolvers;
  int results = 0;
  for (int i = 0; i < 6; ++i) {
    resolvers.push_back(std::make_unique<Resolver>(io, threads));
    resolvers.back()->start("name" + std::to_string(i), [&](const Addresses&) { ++results; });
  }
  REQUIRE(run_until(io, [&] { return names.running() == 2; }));
  CHECK(names.lookups() == 2);
  for (int i = 0; i < 6; ++i) names.answer("name" + std::to_string(i));
  REQUIRE(run_until(io, [&] { return results == 6; }));
  CHECK(names.most_running() == 2);
}

TEST_CASE("a lookup that never ends does not delay the end of the loop") {
  Names names;
  const auto start = std::chrono::steady_clock::now();
  {
    asio::io_context io{1};
    Resolver resolver(io, names.threads());
    resolver.start("never", [](const Addresses&) { FAIL("it cannot end"); });
    REQUIRE(run_until(io, [&] { return names.running() == 1; }));
  }
  CHECK(std::chrono::steady_clock::now() - start < 10s);
  CHECK(names.running() == 1);
  names.answer("never");  // the thread drops the result
}

TEST_CASE("a reconnect uses the last known address while the name is looked up again") {
  asio::io_context io{1};
  Names names;
  const RawSocket server = RawSocket::listening();
  Connector connector(io, names.threads());
  const Endpoint endpoint{"slow", server.port()};
  std::optional<Result<asio::ip::tcp::socket>> socket;
  const auto connect = [&] {
    socket.reset();
    connector.start(endpoint, Connector::OwnAddresses::Connect,
                    [&](Result<asio::ip::tcp::socket> made) { socket.emplace(std::move(made)); });
  };
  connect();
  REQUIRE(run_until(io, [&] { return names.running() == 1; }));
  CHECK_FALSE(socket);
  names.answer("slow");
  REQUIRE(run_until(io, [&] { return socket.has_value(); }));
  REQUIRE(socket->has_value());
  // The next lookup does not end; the connection does not need it.
  names.withdraw("slow");
  connect();
  REQUIRE(run_until(io, [&] { return socket.has_value(); }));
  CHECK(socket->has_value());
  REQUIRE(run_until(io, [&] { return names.running() == 1; }));
  // Without the known address, the connection waits for the lookup.
  connector.forget_address();
  connect();
  io.poll();
  CHECK_FALSE(socket);
  names.answer("slow");
  REQUIRE(run_until(io, [&] { return socket.has_value(); }));
  CHECK(socket->has_value());
  CHECK(names.lookups() == 2);
}

TEST_CASE("the lease clock counts at least the time that the steady clock counts") {
  const auto boot = LeaseClock::now();
  const auto steady = std::chrono::steady_clock::now();
  CHECK(boot.time_since_epoch() >= steady.time_since_epoch() - 1s);
  asio::io_context io{1};
  LeaseTimer timer(io);
  bool is_due = false;
  timer.set(LeaseClock::now() + 20ms, [&] { is_due = true; });
  CHECK_FALSE(timer.is_overdue(LeaseClock::now() - 1h));
  REQUIRE(run_until(io, [&] { return is_due; }));
  CHECK(LeaseClock::now() - boot >= 20ms);
}

}  // namespace drun::test
