// Tests connections to an endpoint whose host has reported its addresses.
#include "rendezvous/net/connector.h"

#include <optional>

#include "tests/support/catch.h"
#include "tests/support/event_loop.h"
#include "tests/support/raw_socket.h"

namespace drun::test {
namespace {

using namespace rendezvous;
using namespace std::chrono_literals;
using ConnectedSocket = Result<asio::ip::tcp::socket>;

// Connects to a host with the given loopback addresses. Only 127.0.0.1 has a listener.
class BookCaller {
 public:
  explicit BookCaller(const std::vector<std::string>& addresses, bool has_loopback = true)
      : connector_(
            io_, no_names(),
            {{.endpoint = endpoint_, .addresses = addresses, .has_loopback = has_loopback}}) {}

  // Returns the address that it connected to, or the error message.
  std::string connect() {
    std::optional<ConnectedSocket> made;
    connector_.start(endpoint_, Connector::OwnAddresses::Connect,
                     [&](ConnectedSocket socket) { made.emplace(std::move(socket)); });
    REQUIRE(run_until(io_, [&] { return made.has_value(); }));
    if (!*made) return made->error().message;
    error_code ec;
    return (*made)->remote_endpoint(ec).address().to_string();
  }
  Connector& connector() { return connector_; }
  std::uint16_t port() const { return endpoint_.port; }

 private:
  static std::shared_ptr<LookupThreads> no_names() {
    return std::make_shared<LookupThreads>([](const std::string& host) -> Addresses {
      if (host == "known") return std::vector{asio::ip::make_address("127.0.0.1")};
      return Error{ErrorCode::Unreachable, "no such name"};
    });
  }

  asio::io_context io_{1};
  const RawSocket server_ = RawSocket::listening();
  const Endpoint endpoint_{"alias", server_.port()};
  Connector connector_;
};

}  // namespace

TEST_CASE("the addresses that a host reported are used instead of its name") {
  CHECK(BookCaller({"127.0.0.1"}).connect() == "127.0.0.1");
  CHECK(BookCaller({"127.0.0.2", "127.0.0.1"}).connect() == "127.0.0.1");
  CHECK(BookCaller({"unknown", "127.0.0.1"}).connect() == "127.0.0.1");
  CHECK(BookCaller({"127.0.0.2", "known"}).connect() == "127.0.0.1");
  CHECK_THAT(BookCaller({"127.0.0.2", "127.0.0.3"}).connect(),
             ContainsSubstring("(127.0.0.2)") && ContainsSubstring("(127.0.0.3)"));
  CHECK_THAT(BookCaller({"unknown"}).connect(), ContainsSubstring("no such name"));
}

TEST_CASE("a loopback address is ignored unless all nodes run on this machine") {
  CHECK(BookCaller({"127.0.0.1"}, false).connect().find("127.0.0.1") == std::string::npos);
  CHECK(BookCaller({"known"}, false).connect().find("127.0.0.1") == std::string::npos);
}

TEST_CASE("an address at which a wrong machine answers is not tried again") {
  BookCaller caller({"127.0.0.1", "127.0.0.2"});
  REQUIRE(caller.connect() == "127.0.0.1");
  caller.connector().reject_address("has another secret");
  const std::string reason = caller.connect();
  CHECK_THAT(reason, ContainsSubstring("has another secret (127.0.0.1)") &&
                         ContainsSubstring("(127.0.0.2)"));
}

TEST_CASE("an avoided address is tried after the others") {
  BookCaller caller({"127.0.0.1", "127.0.0.2"});
  const RawSocket other = RawSocket::listening_at("127.0.0.2", caller.port());
  REQUIRE(other.is_open());
  REQUIRE(caller.connect() == "127.0.0.1");
  CHECK(caller.connect() == "127.0.0.1");
  caller.connector().avoid_address();
  CHECK(caller.connect() == "127.0.0.2");
  CHECK(caller.connect() == "127.0.0.2");
}

}  // namespace drun::test
