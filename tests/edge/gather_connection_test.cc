// Tests gathered lines on the agents' connections: their order, the window, and their priority
// below other messages.
#include "rendezvous/protocol/line_window.h"
#include "tests/support/agents.h"
#include "tests/support/catch.h"

namespace drun::rendezvous {
namespace {

using test::join_spec;
using test::LogLines;
using test::run_until;

// A node that records the messages it receives and sends lines for the test.
class Node final : public Client::Listener, public Client::LineListener {
 public:
  Node(asio::io_context& io, const JoinSpec& spec)
      : client(io, spec, "host" + std::to_string(spec.node_rank), log.log(), *this, this) {
    client.start();
  }

  void on_world(const World& told) override { world = told; }
  void on_stop(int round, const std::optional<rendezvous::StopNotice>& /*notice*/) override {
    stopped_round = round;
  }
  void on_outcome(const Outcome&) override { has_ended = true; }
  void on_lines_wanted(std::size_t bytes, Send how) override {
    window = bytes;
    send = std::move(how);
  }
  void on_lines_taken(std::size_t bytes) override { granted += bytes; }
  void on_lines_lost() override { is_lost = true; }

  LogLines log;
  std::optional<World> world;
  std::optional<int> stopped_round;
  bool has_ended = false;
  std::size_t window = 0;
  Send send;
  std::size_t granted = 0;
  bool is_lost = false;
  Client client;
};

struct Taker final : LogSink {
  void on_lines(const LinesFrom& from, Lines lines) override {
    peer = from.peer;
    text += lines.text;
    cost += cost_bytes(lines);
  }
  void on_lines_end(Peer) override { ++ends; }
  Peer peer = 0;
  std::string text;
  std::size_t cost = 0;
  int ends = 0;
};

struct Cluster {
  explicit Cluster(bool has_secret, bool gathers = true) {
    JoinSpec spec = join_spec(0, 2, 0);
    if (has_secret) spec.secret = test::test_secret();
    spec.gathers_lines = gathers;
    server = *Server::open(
        io, spec, log.log(), [] {}, {}, &sink);
    for (const int node : {0, 1}) {
      JoinSpec own = spec;
      own.node_rank = node;
      own.is_coordinator = node == 0;
      own.endpoint.port = server->port();
      nodes.push_back(std::make_unique<Node>(io, own));
    }
    REQUIRE(run_until(io, [this] { return nodes[0]->world && nodes[1]->world; }));
  }

  LogLines log;
  asio::io_context io{1};
  Taker sink;
  std::unique_ptr<Server> server;
  std::vector<std::unique_ptr<Node>> nodes;
};

}  // namespace

TEST_CASE("lines within the window arrive in order, and a confirmation opens the window again") {
  Cluster cluster(GENERATE(false, true));
  Node& node = *cluster.nodes[1];
  REQUIRE(node.window == line_window_bytes(2));
  std::string sent;
  for (int turn = 0; turn < 3; ++turn) {
    std::size_t cost = 0;
    for (int i = 0;; ++i) {
      const Lines lines{
          .local_rank = i % 2,
          .text = std::string(i % 7 == 0 ? 60000 : 100, static_cast<char>('a' + i % 26))};
      if (cost + cost_bytes(lines) > node.window) break;
      cost += cost_bytes(lines);
      sent += lines.text;
      node.send(lines);
    }
    const std::size_t before = node.granted;
    REQUIRE(run_until(cluster.io, [&] { return cluster.sink.text.size() == sent.size(); }));
    CHECK(node.granted == before);
    cluster.server->lines_taken(cluster.sink.peer, cost);
    REQUIRE(run_until(cluster.io, [&] { return node.granted == before + cost; }));
  }
  CHECK(cluster.sink.text == sent);
  CHECK_FALSE(node.is_lost);
}

TEST_CASE("a failure overtakes the lines that were sent before it") {
  Cluster cluster(GENERATE(false, true));
  Node& node = *cluster.nodes[1];
  const Lines lines{.text = std::string(kMostLinesTextBytes, 'x')};
  std::size_t cost = 0;
  for (; cost + cost_bytes(lines) <= node.window; cost += cost_bytes(lines)) node.send(lines);
  Failure failure;
  failure.rank = node.world->base_rank;
  failure.status = Exited{3};
  node.client.report_failure({failure, std::chrono::steady_clock::now()});
  REQUIRE(run_until(cluster.io, [&] { return cluster.nodes[0]->stopped_round.has_value(); }));
  CHECK(cluster.sink.cost < cost);
  REQUIRE(run_until(cluster.io, [&] { return cluster.sink.cost == cost; }));
}

TEST_CASE("a node that exceeds its window is disconnected, and its earlier lines are kept") {
  Cluster cluster(false);
  Node& node = *cluster.nodes[1];
  const Lines lines{.text = std::string(kMostLinesTextBytes, 'x')};
  for (std::size_t sent = 0; sent <= node.window; sent += lines.text.size()) node.send(lines);
  REQUIRE(run_until(cluster.io, [&] { return node.is_lost; }));
  CHECK(cluster.log.has("lines that it may not send"));
  CHECK(cluster.sink.cost <= node.window);
  CHECK(cluster.sink.ends == 1);
}

TEST_CASE("a node has no window and sends no lines if the coordinator does not gather output") {
  Cluster cluster(false, false);
  CHECK(cluster.nodes[1]->window == 0);
  CHECK_FALSE(cluster.nodes[1]->send);
}

}  // namespace drun::rendezvous
