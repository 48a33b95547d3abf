#include "agent/http/server.h"

#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/machine.h"
#include "tests/support/raw_socket.h"

namespace drun::agent::web {
namespace {

// A server on a separate thread.
class Served {
 public:
  Served() {
    auto opened =
        Server::open(io_, {"127.0.0.1", 0}, [](std::string_view method, std::string_view page) {
          return Answer{.body = std::string(method) + " of " + std::string(page)};
        });
    REQUIRE(opened);
    server_ = *std::move(opened);
    port_ = server_->port();
    thread_ = std::thread([this] { io_.run(); });
  }
  ~Served() {
    asio::post(io_, [this] { server_.reset(); });
    thread_.join();
  }

  std::uint16_t port() const { return port_; }
  // Returns everything that the server sends before it closes the connection.
  std::string said_to(const std::string& request) const {
    const RawSocket socket = RawSocket::connect_to(port_);
    REQUIRE(socket.is_open());
    socket.say(request);
    return socket.hear(1 << 16);
  }

 private:
  asio::io_context io_{1};
  std::unique_ptr<Server> server_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

}  // namespace

TEST_CASE("an HTTP request is answered and the connection is closed") {
  const Served served;
  const std::string said = served.said_to("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK_THAT(said, StartsWith("HTTP/1.1 200 OK\r\n"));
  CHECK_THAT(said, ContainsSubstring("Connection: close\r\n"));
  CHECK_THAT(said, ContainsSubstring("Content-Length: 15\r\n"));
  CHECK_THAT(said, EndsWith("\r\n\r\nGET of /metrics"));
}

TEST_CASE("HEAD is answered without a body") {
  const Served served;
  const std::string said = served.said_to("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK_THAT(said, ContainsSubstring("Content-Length: 16\r\n"));
  CHECK_THAT(said, EndsWith("\r\n\r\n"));
}

TEST_CASE("an invalid or overlong request, or one with a body, closes only its connection") {
  const Served served;
  for (const std::string& bad :
       {std::string("\x16\x03\x01 hello\r\n\r\n"), "GET /" + std::string(20'000, 'x') + " HTTP/1.1",
        "GET / HTTP/1.1\r\nX: " + std::string(20'000, 'x') + "\r\n\r\n",
        std::string("GET / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n")}) {
    CHECK(served.said_to(bad).empty());
  }
  CHECK_THAT(served.said_to("GET /a HTTP/1.0\r\n\r\n"), EndsWith("GET of /a"));
}

TEST_CASE("beyond 32 silent connections new ones are closed until a slot is free") {
  const Served served;
  std::vector<RawSocket> silent;
  for (int i = 0; i < 32; ++i) silent.push_back(RawSocket::connect_to(served.port()));
  CHECK(served.said_to("GET /a HTTP/1.0\r\n\r\n").empty());
  silent.clear();
  const auto until = std::chrono::steady_clock::now() + test::scaled(std::chrono::seconds(10));
  std::string said;
  while (said.empty() && std::chrono::steady_clock::now() < until) {
    said = served.said_to("GET /a HTTP/1.0\r\n\r\n");
  }
  CHECK_THAT(said, EndsWith("GET of /a"));
}

TEST_CASE("the web server's error about a port in use names the port") {
  const Served served;
  asio::io_context io;
  const auto taken = Server::open(io, {"127.0.0.1", served.port()}, {});
  REQUIRE(!taken);
  CHECK_THAT(taken.error().message,
             ContainsSubstring("cannot listen on port " + std::to_string(served.port())));
}

}  // namespace drun::agent::web
