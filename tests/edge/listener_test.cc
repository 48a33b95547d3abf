#include "rendezvous/net/listener.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/resource.h>

#include <algorithm>

#include "tests/support/catch.h"
#include "tests/support/machine.h"
#include "tests/support/raw_socket.h"

namespace drun::rendezvous {
namespace {

using asio::ip::tcp;
using namespace std::chrono_literals;

// A listener, and the connections that it accepted, on the test's thread.
struct Stage {
  explicit Stage(ListenSpec spec = {.loopback_only = true}) {
    Listener::Handlers handlers;
    handlers.on_store = [this](tcp::socket socket, std::string first_bytes) {
      stores.emplace_back(std::move(socket), std::move(first_bytes));
    };
    handlers.on_control = [this](tcp::socket socket, std::string first_bytes) {
      controls.emplace_back(std::move(socket), std::move(first_bytes));
    };
    handlers.keep_silent = [this](const asio::ip::address&) { return keeps_silent; };
    auto opened = Listener::open(io, spec, std::move(handlers),
                                 Log([this](LogLevel, auto line) { lines.emplace_back(line); }));
    if (!opened) throw std::runtime_error(opened.error().message);
    listener = *std::move(opened);
  }
  ~Stage() {
    listener->stop();
    io.run();
  }
  template <typename Condition>
  bool run_until(Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + test::scaled(20s);
    while (!condition() && std::chrono::steady_clock::now() < deadline) io.run_one_for(100ms);
    return condition();
  }

  asio::io_context io{1};
  std::vector<std::pair<tcp::socket, std::string>> stores;
  std::vector<std::pair<tcp::socket, std::string>> controls;
  std::vector<std::string> lines;
  bool keeps_silent = false;
  std::unique_ptr<Listener> listener;
};

}  // namespace

TEST_CASE("the first byte selects the handler of a connection, and no byte is lost") {
  Stage stage;
  const int byte = GENERATE(0, 1, 12, 'd');
  const RawSocket peer = RawSocket::connect_to(stage.listener->port());
  const std::string hello = std::string(1, static_cast<char>(byte)) + "rest";
  REQUIRE(peer.say(hello));
  auto& heard = byte == 'd' ? stage.controls : stage.stores;
  REQUIRE(stage.run_until([&] { return !heard.empty(); }));
  std::string got = heard[0].second;
  while (got.size() < hello.size()) {
    char next = 0;
    asio::read(heard[0].first, asio::buffer(&next, 1));
    got.push_back(next);
  }
  CHECK(got == hello);
  const int fd = heard[0].first.native_handle();
  const auto option = [fd](int level, int name) {
    int value = -1;
    socklen_t size = sizeof(value);
    getsockopt(fd, level, name, &value, &size);
    return value;
  };
  CHECK(option(IPPROTO_TCP, TCP_NODELAY) == 1);
  CHECK(option(SOL_SOCKET, SO_KEEPALIVE) == 1);  // for hosts that lose power
  CHECK(option(IPPROTO_TCP, TCP_KEEPIDLE) == 600);
  CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  CHECK((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
}

TEST_CASE("a connection with an unknown first byte is closed and logged") {
  Stage stage;
  const RawSocket peer = RawSocket::connect_to(stage.listener->port());
  REQUIRE(peer.say("GET / HTTP/1.1\r\n"));
  REQUIRE(stage.run_until([&] { return !stage.lines.empty(); }));
  CHECK(peer.hears_end());
  CHECK_THAT(stage.lines[0], ContainsSubstring("bytes=47455420"));
  CHECK_THAT(stage.lines[0], ContainsSubstring("peer=127.0.0.1:" + std::to_string(peer.port())));
  CHECK(stage.stores.empty());
  CHECK(stage.controls.empty());
}

TEST_CASE("log lines about many rejected connections are rate-limited") {
  Stage stage;
  std::vector<RawSocket> peers;
  for (int i = 0; i < 200; ++i) {
    peers.push_back(RawSocket::connect_to(stage.listener->port()));
    REQUIRE(peers.back().say("x"));
  }
  REQUIRE(stage.run_until([&] {
    return std::all_of(peers.begin(), peers.end(),
                       [](const RawSocket& peer) { return peer.has_something(0); });
  }));
  CHECK(stage.lines.size() < 100);
}

TEST_CASE("a silent connection is closed after the timeout, or handed over if silence is allowed") {
  ListenSpec spec{.loopback_only = true};
  spec.first_byte_timeout = 50ms;
  Stage stage(spec);
  stage.keeps_silent = GENERATE(false, true);
  const RawSocket first = RawSocket::connect_to(stage.listener->port());
  const RawSocket second = RawSocket::connect_to(stage.listener->port());
  REQUIRE(stage.run_until([&] { return stage.listener->silent_count() == 2; }));
  REQUIRE(stage.run_until([&] { return stage.listener->silent_count() == 0; }));
  if (stage.keeps_silent) {
    REQUIRE(stage.stores.size() == 2);
    CHECK(stage.stores[0].second.empty());
    REQUIRE(first.say("k"));
    char next = 0;
    asio::read(stage.stores[0].first, asio::buffer(&next, 1));
    CHECK(next == 'k');
  } else {
    CHECK(first.hears_end());
    CHECK(second.hears_end());
  }
}

TEST_CASE("when too many connections are silent, the oldest is closed first") {
  ListenSpec spec{.loopback_only = true};
  spec.most_silent = 2;
  Stage stage(spec);
  std::vector<RawSocket> peers;
  for (int i = 0; i < 3; ++i) {
    peers.push_back(RawSocket::connect_to(stage.listener->port()));
    REQUIRE(stage.run_until([&] {
      return stage.listener->silent_count() == std::min<std::size_t>(peers.size(), 2) &&
             (peers.size() < 3 || peers[0].has_something(0));
    }));
  }
  CHECK(peers[0].hears_end());
  REQUIRE(peers[1].say("\1"));
  REQUIRE(peers[2].say("\1"));
  CHECK(stage.run_until([&] { return stage.stores.size() == 2; }));
}

TEST_CASE("accept_waiting hands over all pending connections without the event loop") {
  Stage stage;
  std::vector<RawSocket> peers;
  for (int i = 0; i < 20; ++i) {
    peers.push_back(RawSocket::connect_to(stage.listener->port()));
    REQUIRE(peers.back().say("\1"));
  }
  stage.listener->accept_waiting();
  CHECK(stage.stores.size() == 20);
}

TEST_CASE("bytes of an earlier round do not arrive after close_silent") {
  Stage stage;
  const RawSocket ready = RawSocket::connect_to(stage.listener->port());
  REQUIRE(ready.say("\1"));
  const RawSocket silent = RawSocket::connect_to(stage.listener->port());
  REQUIRE(stage.run_until(
      [&] { return stage.stores.size() == 1 && stage.listener->silent_count() == 1; }));
  const RawSocket waiting = RawSocket::connect_to(stage.listener->port());  // not accepted yet
  stage.listener->accept_waiting();
  stage.listener->close_silent();
  CHECK(stage.listener->silent_count() == 0);
  // Simulates late retransmissions of a dead worker's bytes.
  silent.say("\1");
  waiting.say("\1");
  const RawSocket fresh = RawSocket::connect_to(stage.listener->port());
  REQUIRE(fresh.say("\2"));
  REQUIRE(stage.run_until([&] { return stage.stores.size() == 2; }));
  CHECK(stage.stores[1].second == "\2");
  CHECK(silent.hears_end());
  CHECK(waiting.hears_end());
}

TEST_CASE("the error about a port in use names the port and a remedy") {
  const RawSocket taken = RawSocket::listening();
  REQUIRE(taken.is_open());
  asio::io_context io;
  const bool loopback_only = GENERATE(true, false);
  const std::string option = GENERATE("--master-port", "--port");
  const auto opened = Listener::open(
      io, ListenSpec{.port = taken.port(), .port_option = option, .loopback_only = loopback_only},
      {}, Log());
  REQUIRE_FALSE(opened.has_value());
  CHECK(opened.error().code == ErrorCode::System);
  CHECK(opened.error().message == "cannot listen on port " + std::to_string(taken.port()) +
                                      ": address already in use; another run on this machine? "
                                      "choose another " +
                                      option);
}

TEST_CASE("a loopback listener accepts on 127.0.0.1 and on the given literal, on one port") {
  ListenSpec spec{.loopback_only = true};
  spec.loopback_host = "127.0.0.7";
  Stage stage(spec);
  CHECK(RawSocket::connect_to(stage.listener->port()).is_open());
  CHECK(RawSocket::connect_to(stage.listener->port(), "127.0.0.7").is_open());
  CHECK_FALSE(RawSocket::connect_to(stage.listener->port(), "127.0.0.8").is_open());
}

TEST_CASE("a literal that is not loopback is a usage error") {
  asio::io_context io;
  ListenSpec spec{.loopback_only = true};
  spec.loopback_host = GENERATE("10.0.0.1", "localhost", "fd00::1");
  const auto opened = Listener::open(io, spec, {}, Log());
  REQUIRE_FALSE(opened.has_value());
  CHECK(opened.error().code == ErrorCode::Usage);
}

TEST_CASE("without loopback_only every address accepts, of both families if the host has both") {
  Stage stage(ListenSpec{});
  CHECK(RawSocket::connect_to(stage.listener->port(), "127.0.0.1").is_open());
  CHECK(RawSocket::connect_to(stage.listener->port(), "127.0.0.9").is_open());
  error_code ec;
  tcp::socket six(stage.io);
  tcp::acceptor probe(stage.io);
  probe.open(tcp::v6(), ec);
  if (!ec) probe.bind({asio::ip::make_address("::1"), 0}, ec);
  if (ec) {
    WARN("skipped: this host has no ::1");
    return;
  }
  six.connect({asio::ip::make_address("::1"), stage.listener->port()}, ec);
  CHECK_FALSE(ec);
}

TEST_CASE("after stop no connection is accepted") {
  Stage stage;
  const RawSocket silent = RawSocket::connect_to(stage.listener->port());
  REQUIRE(stage.run_until([&] { return stage.listener->silent_count() == 1; }));
  stage.listener->stop();
  stage.listener->stop();
  CHECK(silent.hears_end());
  CHECK_FALSE(RawSocket::connect_to(stage.listener->port()).is_open());
}

TEST_CASE("a listener without descriptors logs that, and accepts again when some are free") {
  Stage stage;
  rlimit old_limit{};
  getrlimit(RLIMIT_NOFILE, &old_limit);
  // UBSan needs descriptors to inspect an object, once per type. A connection that is silent for a
  // moment makes the listener use its timers before the descriptors run out.
  const RawSocket silent = RawSocket::connect_to(stage.listener->port());
  const RawSocket second = RawSocket::connect_to(stage.listener->port());
  REQUIRE(second.say("\1"));
  REQUIRE(stage.run_until([&] { return stage.stores.size() == 1; }));
  REQUIRE(silent.say("\1"));
  REQUIRE(stage.run_until([&] { return stage.stores.size() == 2; }));
  const RawSocket peer = RawSocket::connect_to(stage.listener->port());
  REQUIRE(peer.say("\1"));
  const int lowest_free = dup(0);
  close(lowest_free);
  rlimit tight = old_limit;
  tight.rlim_cur = static_cast<rlim_t>(lowest_free);
  // No assertions until the limit is restored, for the same reason.
  const bool is_tight = setrlimit(RLIMIT_NOFILE, &tight) == 0;
  const bool has_complained = stage.run_until([&] { return !stage.lines.empty(); });
  setrlimit(RLIMIT_NOFILE, &old_limit);
  REQUIRE(is_tight);
  REQUIRE(has_complained);
  CHECK_THAT(stage.lines[0], ContainsSubstring("too many open files"));
  CHECK(stage.run_until([&] { return stage.stores.size() == 3; }));
}

namespace {

// Returns the number of handlers that run after stop, if the listener has paused `pauses` times.
std::size_t handlers_left_after(int pauses) {
  Stage stage({.loopback_only = true, .loopback_host = "127.0.0.2"});
  rlimit old_limit{};
  getrlimit(RLIMIT_NOFILE, &old_limit);
  // For the sanitizer, as above.
  const RawSocket silent = RawSocket::connect_to(stage.listener->port());
  const RawSocket first = RawSocket::connect_to(stage.listener->port());
  REQUIRE(first.say("\1"));
  REQUIRE(stage.run_until([&] { return stage.stores.size() == 1; }));
  REQUIRE(silent.say("\1"));
  REQUIRE(stage.run_until([&] { return stage.stores.size() == 2; }));
  std::vector<RawSocket> peers;
  for (int i = 0; i < pauses; ++i) {
    const std::size_t before = stage.stores.size();
    peers.push_back(RawSocket::connect_to(stage.listener->port()));
    REQUIRE(peers.back().say("\1"));
    const int lowest_free = dup(0);
    close(lowest_free);
    rlimit tight = old_limit;
    tight.rlim_cur = static_cast<rlim_t>(lowest_free);
    const bool is_tight = setrlimit(RLIMIT_NOFILE, &tight) == 0;
    // Only the acceptor for that address is ready, and it cannot accept.
    stage.io.run_one_for(test::scaled(20s));
    setrlimit(RLIMIT_NOFILE, &old_limit);
    REQUIRE((is_tight && stage.stores.size() == before));
    REQUIRE(stage.run_until([&] { return stage.stores.size() == before + 1; }));
  }
  stage.listener->stop();
  return stage.io.run();
}

}  // namespace

TEST_CASE("a pause due to missing descriptors does not arm another address's acceptor twice") {
  const std::size_t once = handlers_left_after(1);
  CHECK(once >= 2);  // one wait per address
  CHECK(handlers_left_after(4) == once);
}

}  // namespace drun::rendezvous
