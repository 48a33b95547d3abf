#include "rendezvous/store/server.h"

#include <thread>

#include "rendezvous/store/wire.h"
#include "tests/support/catch.h"
#include "tests/support/machine.h"
#include "tests/support/raw_socket.h"
#include "tests/support/served_store.h"
#include "tests/support/store_requests.h"

namespace drun {
namespace {

using namespace std::chrono_literals;

std::string request(const store::Request& one, Dialect dialect = Dialect::Current) {
  std::string bytes;
  if (!encode(one, dialect, bytes)) throw std::logic_error("not in this dialect");
  return bytes;
}
std::string u64(std::uint64_t value) {
  std::string bytes;
  put_u64(bytes, value);
  return bytes;
}

RawSocket current_client(const ServedStore& served) {
  RawSocket client = RawSocket::connect_to(served.port());
  REQUIRE(client.say(kValidate));
  return client;
}
const std::string kStop(1, '\0');

}  // namespace

TEST_CASE("clients of both dialects share one key space") {
  ServedStore served;
  const RawSocket current = current_client(served);
  const RawSocket legacy = RawSocket::connect_to(served.port());
  REQUIRE(legacy.say(request(store::Add{"init/", 1}, Dialect::Legacy)));
  CHECK(legacy.hear(8) == u64(1));
  REQUIRE(current.say(request(store::Ping{77}) + request(store::Add{"init/", 1})));
  CHECK(current.hear(12) == std::string("\x4d\0\0\0", 4) + u64(2));
  REQUIRE(legacy.say(request(store::Wait{{"k"}}, Dialect::Legacy)));
  REQUIRE(current.say(request(store::Set{"k", "value"})));
  CHECK(legacy.hear(1) == kStop);
  REQUIRE(legacy.say(request(store::Get{"k"}, Dialect::Legacy)));
  CHECK(legacy.hear(13) == u64(5) + "value");
}

TEST_CASE("VALIDATE can arrive byte by byte") {
  ServedStore served;
  const RawSocket client = RawSocket::connect_to(served.port());
  for (const char& byte : kValidate) REQUIRE(client.say({&byte, 1}));
  REQUIRE(client.say(request(store::NumKeys{})));
  CHECK(client.hear(8) == u64(0));
}

TEST_CASE("an invalid request closes only its connection, with a line in the log") {
  ServedStore served;
  const RawSocket good = current_client(served);
  REQUIRE(good.say(request(store::Set{"text", "x"}) + request(store::NumKeys{}) +
                   request(store::Wait{{"later"}})));
  REQUIRE(good.hear(8) == u64(1));
  const RawSocket bad = current_client(served);
  SECTION("unknown operation") { REQUIRE(bad.say("\x7f")); }
  SECTION("ADD to text") { REQUIRE(bad.say(request(store::Add{"text", 1}))); }
  SECTION("a key too long") { REQUIRE(bad.say("\1" + u64(9000))); }
  CHECK(bad.hears_end());
  CHECK(eventually([&] { return served.lines().size() == 1; }));
  CHECK_THAT(served.lines().at(0),
             ContainsSubstring("peer=127.0.0.1:" + std::to_string(bad.port()) + " reason="));
  const RawSocket third = current_client(served);
  REQUIRE(third.say(request(store::Set{"later", ""})));
  CHECK(good.hear(1) == kStop);
}

TEST_CASE("a valid request before an invalid one still wakes waiting clients") {
  ServedStore served;
  const RawSocket waiting = current_client(served);
  REQUIRE(waiting.say(request(store::Wait{{"k"}}) + request(store::NumKeys{})));
  CHECK(waiting.hear(8) == u64(0));
  const RawSocket bad = current_client(served);
  REQUIRE(bad.say(request(store::Set{"k", ""}) + "\x7f"));
  CHECK(waiting.hear(1) == kStop);
}

TEST_CASE("a client that does not read is not read from, and gets all answers once it reads") {
  ServedStore served;
  const RawSocket client = current_client(served);
  const std::string value(1 << 20, 'v');
  REQUIRE(client.say(request(store::Set{"k", value}) + request(store::NumKeys{})));
  CHECK(client.hear(8) == u64(1));
  constexpr std::size_t kGets = 200;
  std::string gets;
  for (std::size_t i = 0; i < kGets; ++i) gets += request(store::Get{"k"});
  REQUIRE(client.say(gets));
  // Meanwhile other clients are served.
  const RawSocket other = current_client(served);
  REQUIRE(other.say(request(store::NumKeys{})));
  CHECK(other.hear(8) == u64(1));
  for (std::size_t i = 0; i < kGets; ++i) {
    const std::string answer = client.hear(8 + value.size());
    REQUIRE(answer.size() == 8 + value.size());
    REQUIRE(answer == u64(value.size()) + value);
  }
  CHECK(served.connection_count() == 2);
}

TEST_CASE(
    "thousands of requests without an answer are applied in order and do not delay other clients") {
  ServedStore served;
  constexpr int kRow = 20'000;
  const auto send_row = [&served](const std::string& key, int count) {
    RawSocket client = current_client(served);
    for (int i = 1; i <= count; ++i) {
      if (!client.say(request(store::Set{key, std::to_string(i)}))) break;
    }
    return client;
  };
  std::string last_a;
  std::string last_b;
  const auto row = [&](const std::string& key, std::string& last) {
    const RawSocket client = send_row(key, kRow);
    client.say(request(store::Get{key}));
    last = client.hear(13);
  };
  std::thread a([&] { row("a", last_a); });
  std::thread b([&] { row("b", last_b); });
  for (int i = 0; i < 20; ++i) send_row("c", 200);  // before it disconnects
  const RawSocket other = current_client(served);
  for (int i = 1; i <= 200; ++i) {
    REQUIRE(other.say(request(store::Add{"n", 1})));
    REQUIRE(other.hear(8) == u64(static_cast<std::uint64_t>(i)));
  }
  a.join();
  b.join();
  CHECK(last_a == u64(5) + "20000");
  CHECK(last_b == u64(5) + "20000");
}

TEST_CASE("a watcher that does not read its changes is disconnected") {
  rendezvous::StoreServerSpec spec = ServedStore::loopback();
  spec.limits.queued_bytes = 1 << 20;
  ServedStore served(spec);
  const RawSocket watcher = RawSocket::connect_to(served.port());
  REQUIRE(watcher.say(request(store::WatchKey{"k"}, Dialect::Legacy)));
  CHECK(watcher.hear(1) == "\3");
  const RawSocket writer = current_client(served);
  const std::string set = request(store::Set{"k", std::string(1 << 20, 'v')});
  // The socket buffers hold some of it, but are limited.
  for (int i = 0; i < 64; ++i) REQUIRE(writer.say(set));
  REQUIRE(writer.say(request(store::NumKeys{})));
  CHECK(writer.hear(8) == u64(1));
  CHECK(eventually([&] { return served.connection_count() == 1; }));
  CHECK_THAT(served.lines().at(0), ContainsSubstring("does not read"));
}

TEST_CASE("a full store disconnects the client that exceeds the limit, and serves all others") {
  rendezvous::StoreServerSpec spec = ServedStore::loopback();
  spec.limits.memory_bytes = 1 << 20;
  ServedStore served(spec);
  const RawSocket worker = current_client(served);
  REQUIRE(worker.say(request(store::Set{"mine", "v"})));
  std::vector<RawSocket> strangers;
  for (int i = 0; i < 3; ++i) {
    strangers.push_back(current_client(served));
    const bool is_stored = i == 0;  // the others send a request that is never completed
    const std::string bytes = request(store::Set{"his", std::string(900 << 10, 'x')});
    REQUIRE(strangers.back().say(is_stored ? bytes : bytes.substr(0, bytes.size() - 1)));
    if (is_stored) REQUIRE(strangers.back().say(request(store::NumKeys{})));
    if (is_stored) REQUIRE(strangers.back().hear(8) == u64(2));
  }
  CHECK(strangers[1].hears_end());
  CHECK(strangers[2].hears_end());
  REQUIRE(worker.say(request(store::Add{"n", 1})));
  CHECK(worker.hear(8) == u64(1));
  REQUIRE(eventually([&] { return served.lines().size() == 2; }));
  CHECK_THAT(served.lines()[0],
             ContainsSubstring("beyond its limit of 1048576 bytes; raise --store-memory"));
  REQUIRE(strangers[0].say(request(store::DeleteKey{"his"})));
  REQUIRE(strangers[0].hear(8) == u64(1));
  CHECK(served.connection_count() == 2);
}

TEST_CASE("a client is disconnected between two requests if its answers exceed the store's limit") {
  rendezvous::StoreServerSpec spec = ServedStore::loopback();
  spec.limits.memory_bytes = 1 << 20;
  ServedStore served(spec);
  const RawSocket writer = current_client(served);
  REQUIRE(writer.say(request(store::Set{"k", std::string(2000, 'x')})));
  // Fills the store except for some hundred bytes.
  REQUIRE(writer.say(request(store::Set{"fill", std::string((1 << 20) - 3000, 'x')})));
  REQUIRE(writer.say(request(store::NumKeys{})));
  REQUIRE(writer.hear(8) == u64(2));
  const RawSocket reader = current_client(served);
  const std::string get = request(store::Get{"k"});
  REQUIRE(reader.say(get + get + get));
  CHECK(reader.hears_end());
  REQUIRE(writer.say(request(store::NumKeys{})));
  CHECK(writer.hear(8) == u64(2));
  REQUIRE(eventually([&] { return served.lines().size() == 1; }));
  CHECK_THAT(served.lines()[0], ContainsSubstring("raise --store-memory"));
}

TEST_CASE("values in unsent answers count towards the limit until their connection closes") {
  rendezvous::StoreServerSpec spec = ServedStore::loopback();
  spec.limits.memory_bytes = 24 << 20;
  ServedStore served(spec);
  const std::string set = request(store::Set{"k", std::string(8 << 20, 'x')});
  const RawSocket writer = current_client(served);
  std::vector<RawSocket> readers;  // that do not read: each holds a different value
  for (int i = 0; i < 2; ++i) {
    REQUIRE(writer.say(set + request(store::NumKeys{})));
    REQUIRE(writer.hear(8) == u64(1));
    readers.push_back(current_client(served));
    REQUIRE(readers.back().say(request(store::Get{"k"})));
    REQUIRE(readers.back().hear(8) == u64(8 << 20));
  }
  static_cast<void>(writer.say(set));
  CHECK(writer.hears_end());
  readers.clear();
  REQUIRE(eventually([&] { return served.connection_count() == 0; }));
  const RawSocket next = current_client(served);
  REQUIRE(next.say(set + request(store::NumKeys{})));
  CHECK(next.hear(8) == u64(1));
}

TEST_CASE("an endless stream of requests does not block other clients") {
  ServedStore served;
  std::atomic<bool> is_over = false;
  std::thread flood([&] {
    const RawSocket client = current_client(served);
    std::string many;
    for (int i = 0; i < 1000; ++i) many += request(store::Set{"flood", "v"});
    while (!is_over && client.say(many)) {
    }
  });
  const RawSocket other = current_client(served);
  for (int i = 0; i < 50; ++i) {
    REQUIRE(other.say(request(store::Add{"n", 1})));
    REQUIRE(other.hear(8).size() == 8);
  }
  is_over = true;
  flood.join();
}

TEST_CASE(
    "a client that completes no request in time is closed, and after one request has no limit") {
  asio::io_context io{1};
  std::vector<std::string> lines;
  rendezvous::StoreService service(
      io, StoreLimits{}, Log([&lines](LogLevel, auto line) { lines.emplace_back(line); }), 100ms);
  rendezvous::Listener::Handlers handlers;
  handlers.on_store = [&service](asio::ip::tcp::socket socket, std::string first_bytes) {
    service.adopt(std::move(socket), std::move(first_bytes));
  };
  auto listener = rendezvous::Listener::open(io, {.loopback_only = true}, handlers, Log());
  REQUIRE(listener.has_value());
  const RawSocket worker = RawSocket::connect_to((*listener)->port());
  REQUIRE(worker.say(std::string(kValidate) + request(store::Set{"k", "v"})));
  const RawSocket half = RawSocket::connect_to((*listener)->port());
  REQUIRE(half.say(kValidate));
  const auto deadline = std::chrono::steady_clock::now() + test::scaled(20s);
  while (lines.empty() && std::chrono::steady_clock::now() < deadline) io.run_one_for(100ms);
  CHECK(half.hears_end());
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines[0], ContainsSubstring("it made no request in time"));
  CHECK(service.connection_count() == 1);
  CHECK_FALSE(worker.has_something(0));
}

TEST_CASE("clear closes every connection and empties the store") {
  asio::io_context io{1};
  rendezvous::StoreService service(io, StoreLimits{}, Log());
  rendezvous::Listener::Handlers handlers;
  handlers.on_store = [&service](asio::ip::tcp::socket socket, std::string first_bytes) {
    service.adopt(std::move(socket), std::move(first_bytes));
  };
  auto listener = rendezvous::Listener::open(io, {.loopback_only = true}, handlers, Log());
  REQUIRE(listener.has_value());
  const auto connect = [&] { return RawSocket::connect_to((*listener)->port()); };
  const std::string set = std::string(kValidate) + request(store::Set{"old", "v"});
  const auto run_until = [&io](const std::function<bool()>& holds) {
    const auto deadline = std::chrono::steady_clock::now() + test::scaled(20s);
    while (!holds() && std::chrono::steady_clock::now() < deadline) io.run_one_for(100ms);
    return holds();
  };

  const RawSocket old = connect();
  REQUIRE(old.say(set + request(store::Wait{{"k"}})));
  REQUIRE(run_until([&] { return service.key_count() == 1; }));
  // A request of a dead worker that is still in transit belongs to the old round, too.
  const RawSocket late = connect();
  REQUIRE(late.say(set));
  (*listener)->accept_waiting();
  service.clear();
  CHECK(service.connection_count() == 0);
  CHECK(service.key_count() == 0);
  CHECK(old.hears_end());
  CHECK(late.hears_end());

  const RawSocket fresh = connect();
  REQUIRE(fresh.say(std::string(kValidate) + request(store::Set{"new", "v"})));
  CHECK(run_until([&] { return service.key_count() == 1; }));
  (*listener)->stop();
  service.stop();
  CHECK(fresh.hears_end());
  io.run();
}

TEST_CASE("a legacy client's second connection can stay silent, but another silent one is closed") {
  rendezvous::StoreServerSpec spec = ServedStore::loopback();
  spec.listen.first_byte_timeout = 100ms;
  ServedStore served(spec);
  const RawSocket main = RawSocket::connect_to(served.port());
  REQUIRE(main.say(request(store::Add{"init/", 1}, Dialect::Legacy)));
  CHECK(main.hear(8) == u64(1));
  const RawSocket second = RawSocket::connect_to(served.port());
  const RawSocket third = RawSocket::connect_to(served.port());
  // The connection that arrived first is kept.
  CHECK(third.hears_end());
  CHECK(served.connection_count() == 2);
  REQUIRE(second.say(request(store::WatchKey{"k"}, Dialect::Legacy)));
  CHECK(second.hear(1) == "\3");
}

TEST_CASE("thousands of clients can connect at once, and are all served and woken") {
  constexpr int kClients = 2000;
  ServedStore served;
  std::vector<RawSocket> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(RawSocket::connect_to(served.port()));
    REQUIRE(clients.back().is_open());
    REQUIRE(clients.back().say(std::string(kValidate) + request(store::Ping{1}) +
                               request(store::Add{"init/", 1}) + request(store::Wait{{"go"}})));
  }
  for (const RawSocket& client : clients) REQUIRE(client.hear(12).size() == 12);
  CHECK(served.connection_count() == kClients);
  const RawSocket starter = current_client(served);
  REQUIRE(starter.say(request(store::Set{"go", ""}) + request(store::Get{"init/"})));
  CHECK(starter.hear(12) == u64(4) + std::to_string(kClients));
  for (const RawSocket& client : clients) REQUIRE(client.hear(1) == kStop);
  clients.clear();
  CHECK(eventually([&] { return served.connection_count() == 1; }));
}

}  // namespace drun
