// Tests control connections whose peer does not read, on loopback sockets, and links within a
// process.
#include "rendezvous/protocol/control_connection.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/net/frame_reader.h"
#include "rendezvous/protocol/control_link.h"
#include "rendezvous/protocol/control_wire.h"
#include "tests/support/catch.h"
#include "tests/support/event_loop.h"
#include "tests/support/raw_socket.h"

namespace drun::rendezvous {
namespace {

using asio::ip::tcp;
using Bytes = ControlConnection::Bytes;

Bytes bytes_of(std::size_t size) { return std::make_shared<const std::string>(size, 'x'); }

struct Ends final : ControlLink::Listener {
  void on_frame(ControlLink&, std::string_view) override {}
  void on_end(ControlLink&, const ConnectionEnd& end) override {
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

// One end of a link within a process: the messages that it got, and how it ended.
struct LinkEnd final : ControlLink::Listener {
  void on_frame(ControlLink& link, std::string_view frame) override {
    const Result<MemberMessage> message = decode_member_message(frame);
    const auto* success = message ? std::get_if<AllReturned>(&*message) : nullptr;
    rounds.push_back(success == nullptr ? -1 : success->round);
    if (closes_at_frame) link.close();
  }
  void on_end(ControlLink&, const ConnectionEnd& ended) override { ends.push_back(ended.reason); }

  std::vector<int> rounds;
  std::vector<std::string> ends;
  bool closes_at_frame = false;
};

struct LocalPair {
  static Bytes frame(int round) {
    return std::make_shared<const std::string>(encode(MemberMessage(AllReturned{round})));
  }
  asio::io_context io{1};
  LinkEnd coordinator;
  LinkEnd member;
  LocalLink link = make_local_link(io, 29500, 7, coordinator, member);
};

}  // namespace

TEST_CASE("a link within a process passes frames in order, from the loop only") {
  LocalPair pair;
  CHECK(pair.link.coordinators_end->id() == 7);
  CHECK(pair.link.members_end->address() == "127.0.0.1");
  CHECK(pair.link.members_end->peer() == "127.0.0.1:29500");
  for (int round = 0; round < 3; ++round) pair.link.members_end->send(LocalPair::frame(round));
  const Bytes whole = LocalPair::frame(3);
  pair.link.members_end->send(std::make_shared<const std::string>(whole->substr(0, 5)),
                              std::make_shared<const std::string>(whole->substr(5)));
  pair.link.coordinators_end->send(LocalPair::frame(9));
  CHECK(pair.coordinator.rounds.empty());
  pair.io.poll();
  CHECK(pair.coordinator.rounds == std::vector<int>{0, 1, 2, 3});
  CHECK(pair.member.rounds == std::vector<int>{9});
  CHECK(pair.coordinator.ends.empty());
}

TEST_CASE(
    "an end of a link within a process that finishes loses nothing, and the other hears it once") {
  LocalPair pair;
  pair.link.coordinators_end->send(LocalPair::frame(1));
  pair.link.coordinators_end->finish();
  pair.link.coordinators_end->send(LocalPair::frame(2));
  pair.link.members_end->send(LocalPair::frame(3));
  pair.io.poll();
  CHECK(pair.member.rounds == std::vector<int>{1});
  CHECK(pair.member.ends == std::vector<std::string>{"its connection closed"});
  CHECK(pair.coordinator.rounds.empty());
  CHECK(pair.coordinator.ends.empty());
  pair.link.members_end->close();
  pair.io.restart();
  pair.io.poll();
  CHECK(pair.member.ends.size() == 1);
}

TEST_CASE("an end of a link within a process may close it from its callback") {
  LocalPair pair;
  pair.member.closes_at_frame = true;
  for (int round = 0; round < 3; ++round) pair.link.coordinators_end->send(LocalPair::frame(round));
  pair.io.poll();
  CHECK(pair.member.rounds == std::vector<int>{0});
  CHECK(pair.member.ends.empty());
  CHECK(pair.coordinator.ends == std::vector<std::string>{"its connection closed"});
}

TEST_CASE("a link within a process ends if a peer breaks the protocol") {
  LocalPair pair;
  pair.link.members_end->send(std::make_shared<const std::string>("\xff\xff\xff\xff"));
  pair.io.poll();
  REQUIRE(pair.coordinator.ends.size() == 1);
  CHECK_THAT(pair.coordinator.ends[0], ContainsSubstring("broke the control protocol"));
  CHECK(pair.member.ends.size() == 1);
}

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
