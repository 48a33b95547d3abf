// Tests control connections whose peer does not read, on loopback sockets.
#include "rendezvous/protocol/control_connection.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/net/frame_reader.h"
#include "tests/support/catch.h"
#include "tests/support/event_loop.h"
#include "tests/support/raw_socket.h"

namespace drun::rendezvous {
namespace {

using asio::ip::tcp;
using Bytes = ControlConnection::Bytes;

Bytes bytes_of(std::size_t size) { return std::make_shared<const std::string>(size, 'x'); }

struct Ends final : ControlConnection::Listener {
  void on_frame(ControlConnection&, std::string_view) override {}
  void on_end(ControlConnection&, const ConnectionEnd& end) override {
    ++count;
    reason = end.reason;
  }
  int count = 0;
  std::string reason;
};

// Accepted connections, and their peers, which have sent their preamble.
struct Accepting {
  std::shared_ptr<ControlConnection> accept() {
    peers.push_back(RawSocket::connect_to(acceptor.local_endpoint().port()));
    REQUIRE(peers.back().is_open());
    auto connection = std::make_shared<ControlConnection>(
        acceptor.accept(), ControlConnection::Side::Accepting, 4096, peers.size(), ends);
    connection->start(encode_preamble());
    return connection;
  }
  asio::io_context io{1};
  tcp::acceptor acceptor{io, tcp::endpoint(asio::ip::address_v4::loopback(), 0)};
  Ends ends;
  std::vector<RawSocket> peers;
};

}  // namespace

TEST_CASE("a peer that never reads is disconnected at the bound, with the reason") {
  Accepting server;
  const auto connection = server.accept();
  const Bytes frame = bytes_of(64 << 10);
  std::size_t sent = 0;
  // The kernel buffers some megabytes; beyond that, the queue's limit applies.
  while (server.ends.count == 0 && sent < (std::size_t{256} << 20)) {
    connection->send(frame);
    sent += frame->size();
    CHECK(connection->queued_bytes() <= kSendLimitBytes);
    server.io.poll();
  }
  CHECK(server.ends.count == 1);
  CHECK_THAT(server.ends.reason, ContainsSubstring("it does not read: more than 4 MiB"));
  connection->send(frame);  // dropped: the connection has ended
  server.io.poll();
  CHECK(server.ends.count == 1);
  CHECK(frame.use_count() == 1);
}

TEST_CASE("data sent to many peers that do not read is stored only once") {
  Accepting server;
  constexpr int kPeers = 40;
  const Bytes body = bytes_of(kSendLimitBytes - 4096);
  std::vector<std::shared_ptr<ControlConnection>> connections;
  for (int i = 0; i < kPeers; ++i) connections.push_back(server.accept());
  server.io.poll();
  for (const auto& connection : connections) connection->send(bytes_of(13), body);
  server.io.poll();
  // Each queue that still holds the frame adds one reference and no copy.
  CHECK(body.use_count() > kPeers / 2);
  CHECK(server.ends.count == 0);
  for (const auto& connection : connections) connection->close();
  server.io.poll();
  CHECK(body.use_count() == 1);
}

TEST_CASE("a peer that reads gets everything in order, whatever the total size") {
  Accepting server;
  const auto connection = server.accept();
  std::string expected = encode_preamble();
  std::size_t received = 0;
  bool is_same = true;
  std::vector<char> piece(256 << 10);
  for (int i = 0; i < 200; ++i) {
    const std::string head = "<" + std::to_string(i) + ">";
    connection->send(std::make_shared<const std::string>(head), bytes_of(100'000));
    expected += head + std::string(100'000, 'x');
    while (received < expected.size() && is_same) {
      server.io.poll();
      const ssize_t size = ::recv(server.peers[0].fd(), piece.data(), piece.size(), MSG_DONTWAIT);
      if (size <= 0) continue;
      is_same = expected.compare(received, static_cast<std::size_t>(size), piece.data(),
                                 static_cast<std::size_t>(size)) == 0;
      received += static_cast<std::size_t>(size);
    }
  }
  CHECK(is_same);
  CHECK(received == expected.size());
  CHECK(connection->queued_bytes() == 0);
  CHECK(server.ends.count == 0);
  connection->close();
}

}  // namespace drun::rendezvous
