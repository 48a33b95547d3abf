#include "rendezvous/store/client.h"

#include <fcntl.h>

#include <thread>

#include "rendezvous/store/wire.h"
#include "tests/support/catch.h"
#include "tests/support/impostor.h"
#include "tests/support/served_store.h"

namespace drun {
namespace {

using namespace std::chrono_literals;
using test::Impostor;
using Keys = std::vector<std::string>;

// A client with the given dialect, or with the detected one.
StoreClient client_of(const ServedStore& served, std::optional<Dialect> dialect = std::nullopt) {
  Result<StoreClient> client =
      StoreClient::connect({.endpoint = served.endpoint(), .timeout = 20s, .dialect = dialect});
  if (!client) throw std::runtime_error(client.error().message);
  return *std::move(client);
}

template <typename T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return *std::move(result);
}
void must(const Result<void>& result) {
  if (!result) throw std::runtime_error(result.error().message);
}

}  // namespace

TEST_CASE("a client performs every operation in both dialects") {
  ServedStore served;
  const auto dialect = GENERATE(Dialect::Current, Dialect::Legacy);
  StoreClient client = client_of(served, dialect);
  CHECK(client.dialect() == dialect);
  CHECK(must(client.announce()) == 1);
  must(client.set("k", "value"));
  CHECK(must(client.get("k")) == "value");
  CHECK(must(client.add("n", 5)) == 5);
  CHECK(must(client.add("n", -6)) == -1);
  CHECK(must(client.get("n")) == "-1");
  CHECK(must(client.compare_set("k", "other", "x")) == "value");
  CHECK(must(client.compare_set("k", "value", "x")) == "x");
  CHECK(must(client.compare_set("c", "", "new")) == "new");
  must(client.wait(Keys{"k", "n"}));
  must(client.wait(Keys{}));
  CHECK(must(client.check(Keys{"k", "n"})));
  CHECK_FALSE(must(client.check(Keys{"k", "missing"})));
}

TEST_CASE("values of any bytes and any size arrive whole") {
  ServedStore served;
  StoreClient client = client_of(served);
  std::string value(8 << 20, '\0');
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 7919 >> 3);
  must(client.set("big", value));
  CHECK(must(client.get("big")) == value);
  must(client.set(std::string("k\0k", 3), ""));
  CHECK(must(client.check(Keys{std::string("k\0k", 3)})));
}

TEST_CASE("get waits until the key is set") {
  ServedStore served;
  StoreClient getter = client_of(served);
  std::thread setter([&] {
    StoreClient client = client_of(served);
    must(client.set("k", "at last"));
  });
  CHECK(must(getter.get("k")) == "at last");
  setter.join();
}

TEST_CASE("the error of a timed-out wait names the key, and the client remains usable") {
  ServedStore served;
  const auto dialect = GENERATE(Dialect::Current, Dialect::Legacy);
  const auto timeout = GENERATE(0ms, 30ms);
  StoreClient client = client_of(served, dialect);
  for (int i = 0; i < 3; ++i) {
    client.set_timeout(timeout);
    const Result<void> waited = client.wait(Keys{"never", "other"});
    REQUIRE_FALSE(waited.has_value());
    CHECK(waited.error().code == ErrorCode::Timeout);
    CHECK_THAT(waited.error().message, ContainsSubstring("\"never\" and 1 more"));
    CHECK_THAT(waited.error().message, ContainsSubstring(to_string(served.endpoint())));
    CHECK_THAT(waited.error().message, ContainsSubstring(" ms"));
    client.set_timeout(20s);
    CHECK(must(client.add("n", 1)) == i + 1);
  }
  client.set_timeout(timeout);
  CHECK(client.get("never").error().code == ErrorCode::Timeout);
  client.set_timeout(20s);
  // A late wake-up must not be taken for another operation's answer.
  StoreClient other = client_of(served);
  must(other.set("never", ""));
  must(other.set("other", ""));
  CHECK(must(client.get("never")).empty());
  CHECK(must(client.add("n", 1)) == 4);
}

TEST_CASE("a wake-up that crosses the cancel request counts as a wake-up") {
  const std::string nothing_else(1, '\1');
  Impostor impostor({[](const RawSocket& peer) {
    test::greet(peer);
    peer.hear(1 + 8 + 8 + 2);  // WAIT for "/k"
    peer.hear(1);              // CANCEL_WAIT: the client timed out
    peer.say(std::string("\0\1", 2));
    peer.hear(1 + 8 + 2 + 8);  // ADD to "/n"
    peer.say(std::string("\7\0\0\0\0\0\0\0", 8));
    test::until_closed(peer);
  }});
  StoreClient client = must(StoreClient::connect(impostor.options()));
  client.set_timeout(20ms);
  must(client.wait(Keys{"k"}));
  client.set_timeout(20s);
  CHECK(must(client.add("n", 1)) == 7);
}

TEST_CASE("a client waits for a named server that is not up yet") {
  const RawSocket reserved = RawSocket::listening();
  const std::uint16_t port = reserved.port();
  shutdown(reserved.fd(), SHUT_RDWR);  // keeps the port, refuses connections
  std::optional<ServedStore> served;
  std::promise<void> has_tried;
  std::thread later([&] {
    has_tried.get_future().wait();
    rendezvous::StoreServerSpec spec = ServedStore::loopback();
    spec.listen.port = port;
    served.emplace(spec);
  });
  const Endpoint endpoint{.host = "localhost", .port = port};
  const Result<StoreClient> early = StoreClient::connect({.endpoint = endpoint, .timeout = 50ms});
  CHECK(early.error().code == ErrorCode::Unreachable);
  CHECK_THAT(early.error().message,
             ContainsSubstring("the store at localhost:" + std::to_string(port)));
  CHECK_THAT(early.error().message, ContainsSubstring("connection refused"));
  has_tried.set_value();
  Result<StoreClient> client = StoreClient::connect({.endpoint = endpoint, .timeout = 20s});
  later.join();
  REQUIRE(client.has_value());
  CHECK(must(client->add("n", 1)) == 1);
}

TEST_CASE("a name that does not resolve is unreachable, after the timeout") {
  const Result<StoreClient> client = StoreClient::connect(
      {.endpoint = {.host = "no-such-host.invalid", .port = 1}, .timeout = 30ms});
  REQUIRE_FALSE(client.has_value());
  CHECK(client.error().code == ErrorCode::Unreachable);
  CHECK_THAT(client.error().message, ContainsSubstring("does not resolve"));
}

TEST_CASE("connecting to a server that sends nothing times out") {
  Impostor impostor({test::until_closed});
  const Result<StoreClient> client = StoreClient::connect(impostor.options(50ms));
  REQUIRE_FALSE(client.has_value());
  CHECK(client.error().code == ErrorCode::Timeout);
  CHECK_THAT(client.error().message, ContainsSubstring("does not answer"));
}

TEST_CASE("if a server stops answering, the operation times out and the client is closed") {
  Impostor impostor({[](const RawSocket& peer) {
    test::greet(peer);
    test::until_closed(peer);
  }});
  StoreClient client = must(StoreClient::connect(impostor.options()));
  client.set_timeout(50ms);
  const Result<std::int64_t> sum = client.add("n", 1);
  REQUIRE_FALSE(sum.has_value());
  CHECK(sum.error().code == ErrorCode::Timeout);
  CHECK_THAT(sum.error().message, ContainsSubstring("ADD \"n\""));
  CHECK(client.add("n", 1).error().code == ErrorCode::Closed);
  CHECK(client.set("n", "").error().code == ErrorCode::Closed);
}

TEST_CASE("when a server stops, pending and later operations fail at once") {
  auto served = std::make_unique<ServedStore>();
  StoreClient waiting = client_of(*served);
  StoreClient idle = client_of(*served);
  std::thread waiter([&] {
    const Result<void> waited = waiting.wait(Keys{"never"});
    CHECK(waited.error().code == ErrorCode::Closed);
    CHECK_THAT(waited.error().message, ContainsSubstring("\"never\""));
  });
  CHECK(eventually([&] { return served->connection_count() == 2; }));
  served.reset();
  waiter.join();
  CHECK(idle.get("k").error().code == ErrorCode::Closed);
}

TEST_CASE("a server that is not a TCPStore is rejected") {
  SECTION("it sends another protocol's answer") {
    Impostor impostor({[](const RawSocket& peer) {
      peer.hear(1);
      peer.say("HTTP/1.1 400 Bad Request\r\n\r\n");
      test::until_closed(peer);
    }});
    const Result<StoreClient> client = StoreClient::connect(impostor.options());
    REQUIRE_FALSE(client.has_value());
    CHECK(client.error().code == ErrorCode::Refused);
    CHECK_THAT(client.error().message, ContainsSubstring("not a TCPStore"));
  }
  SECTION("it closes every connection") {
    Impostor impostor(std::vector<Impostor::Manner>(9, test::close_at_once));
    const Result<StoreClient> client = StoreClient::connect(impostor.options());
    REQUIRE_FALSE(client.has_value());
    CHECK(client.error().code == ErrorCode::Refused);
  }
}

TEST_CASE("the dialect of servers of every version is detected") {
  std::vector<Impostor::Manner> manners;
  const int age = GENERATE(0, 1, 2);
  for (int i = 0; i < age; ++i) manners.emplace_back(test::close_at_once);
  if (age == 0) manners.emplace_back(test::greet);
  if (age == 1) {
    manners.emplace_back([](const RawSocket& peer) {
      // A legacy server would parse this as a key length beyond any memory.
      if (peer.hear(5 + 4) == std::string(kValidate) + "\x0c\x0c\x0c\x0c") {
        peer.say("\1\1\1\1");
      }
    });
  }
  if (age == 2) {
    manners.emplace_back([](const RawSocket& peer) {
      if (peer.hear(9) == "\4" + std::string(8, '\0')) peer.say(std::string(1, '\0'));
    });
  }
  Impostor impostor(manners);
  const Result<StoreClient> client = StoreClient::connect(impostor.options());
  REQUIRE(client.has_value());
  CHECK(client->dialect() == (age == 2 ? Dialect::Legacy : Dialect::Current));
}

TEST_CASE("a malformed answer closes the client") {
  const std::string answer = GENERATE(std::string(8, '\xff'), std::string(7, '\0') + "\1");
  Impostor impostor({[answer](const RawSocket& peer) {
    test::greet(peer);
    peer.say(std::string(1, '\0') + answer);  // the answer to WAIT, and a length
    test::until_closed(peer);
  }});
  StoreClient client = must(StoreClient::connect(impostor.options()));
  CHECK(client.get("k").error().code == ErrorCode::Refused);
  CHECK(client.add("k", 1).error().code == ErrorCode::Closed);
}

TEST_CASE("a client's socket is not inherited, and a client can be moved") {
  ServedStore served;
  StoreClient first = client_of(served);
  bool has_seen_socket = false;
  for (int fd = 3; fd < 64; ++fd) {
    sockaddr_in peer{};
    socklen_t size = sizeof(peer);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    has_seen_socket = true;
    CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  }
  CHECK(has_seen_socket);
  StoreClient second = std::move(first);
  CHECK(must(second.add("n", 1)) == 1);
  first = std::move(second);
  CHECK(must(first.add("n", 1)) == 2);
}

}  // namespace drun
