// Tests how lines are sent from a node to the coordinator: split, limited by a window, reassembled.
#include <map>
#include <random>

#include "agent/output/log_gathering.h"
#include "rendezvous/coordinator/round_state.h"
#include "rendezvous/server/log_collector.h"
#include "tests/support/catch.h"

namespace drun::agent {
namespace {

using rendezvous::cost_bytes;
using rendezvous::LineLedger;
using rendezvous::Lines;
using rendezvous::LinesFrom;
using rendezvous::LogCollector;

constexpr std::size_t kWindow = std::size_t{64} << 10;

Lines like(int local_rank, bool is_end = false) {
  return {.local_rank = local_rank, .is_end = is_end};
}

struct Taker final : rendezvous::LogSink {
  void on_lines(const LinesFrom& from, Lines lines) override {
    froms.push_back(from);
    texts.push_back(lines.text);
  }
  void on_lines_end(rendezvous::Peer peer) override { ended.push_back(peer); }
  std::vector<LinesFrom> froms;
  std::vector<std::string> texts;
  std::vector<rendezvous::Peer> ended;
};

// A running round of two nodes, two workers each; peers are node rank + 10.
rendezvous::RoundState running_round() {
  rendezvous::RoundState state;
  state.nodes.resize(2);
  for (int node = 0; node < 2; ++node) {
    auto& self = state.nodes[static_cast<std::size_t>(node)];
    self.hello.local_world_size = 2;
    self.hello.host = "host" + std::to_string(node);
    self.hello.role = "trainer";
    self.base_rank = 2 * node;
    state.node_of[static_cast<rendezvous::Peer>(node + 10)] = node;
  }
  state.round = 3;
  return state;
}

}  // namespace

TEST_CASE("at most one window of lines is in flight, and all of them arrive in order") {
  const unsigned seed = GENERATE(range(0U, 20U));
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const std::size_t window = seed % 2 == 0 ? kWindow : std::size_t{1} << 20;
  LineSender sender;
  sender.open(window);
  LineLedger ledger(window);
  std::map<int, std::string> written;
  std::map<int, std::string> arrived;
  std::deque<Lines> at_coordinator;
  const auto send_all = [&] {
    while (const Lines* lines = sender.next()) {
      REQUIRE(ledger.accept(1, cost_bytes(*lines)));
      REQUIRE(lines->text.size() <= rendezvous::most_text_bytes(window));
      at_coordinator.push_back(*lines);
    }
  };
  const auto take_one = [&] {
    if (at_coordinator.empty()) return;
    const Lines lines = at_coordinator.front();
    at_coordinator.pop_front();
    arrived[lines.local_rank] += lines.text;
    const bool goes_on_here = lines.goes_on && !at_coordinator.empty();
    if (goes_on_here) CHECK(at_coordinator.front().local_rank == lines.local_rank);
    if (const std::size_t granted = ledger.taken(1, cost_bytes(lines)); granted > 0)
      sender.granted(granted);
  };
  for (int i = 0; i < 400; ++i) {
    const int local_rank = static_cast<int>(random() % 3);
    std::string text(random() % (random() % 10 == 0 ? 200000 : 3000), 'a');
    for (std::size_t at = random() % 200; at < text.size(); at += 1 + random() % 5000)
      text[at] = '\n';
    if (text.empty()) text = "x";
    written[local_rank] += text;
    sender.push(like(local_rank), text);
    send_all();
    for (unsigned count = random() % 4; count > 0; --count) take_one();
    send_all();
  }
  while (!at_coordinator.empty()) {
    take_one();
    send_all();
  }
  CHECK(sender.is_idle());
  CHECK_FALSE(sender.is_congested());
  CHECK(arrived == written);
}

TEST_CASE("a sender is congested only while the coordinator does not confirm lines") {
  LineSender sender;
  sender.open(kWindow);
  std::size_t sent = 0;
  const auto send_all = [&] {
    while (const Lines* lines = sender.next()) sent += cost_bytes(*lines);
  };
  int pushes = 0;
  for (; !sender.is_congested() && pushes < 1000; ++pushes) {
    sender.push(like(0), std::string(8000, 'x').append("\n"));
    send_all();
  }
  CHECK(pushes < 1000);
  CHECK(sent <= kWindow);
  while (sender.is_congested()) {
    REQUIRE(sent > 0);
    sender.granted(std::exchange(sent, 0));
    send_all();
  }
  CHECK_FALSE(sender.is_idle());
  while (sent > 0) {
    sender.granted(std::exchange(sent, 0));
    send_all();
  }
  CHECK(sender.is_idle());
}

TEST_CASE("unconfirmed lines are returned in order when the connection is lost") {
  LineSender sender;
  sender.open(kWindow);
  for (const char* text : {"one\n", "two\n", "three\n"}) sender.push(like(0), text);
  sender.push(like(0, true), "");
  REQUIRE(sender.next() != nullptr);
  REQUIRE(sender.next() != nullptr);
  sender.granted(cost_bytes({.text = "one\n"}));
  const std::vector<Lines> left = sender.close();
  REQUIRE(left.size() == 3);
  CHECK(left[0].text == "two\n");
  CHECK(left[1].text == "three\n");
  CHECK(left[2].is_end);
  CHECK(sender.is_idle());
}

TEST_CASE("text is split at line ends where possible, and only the last piece has the end mark") {
  LineSender sender;
  sender.open(std::size_t{1} << 20);
  const std::string line(1000, 'x');
  std::string text;
  for (int i = 0; i < 100; ++i) text += line + "\n";
  text += std::string(100000, 'y').append("\n");
  sender.push(like(0, true), text);
  std::string together;
  bool has_ended = false;
  while (const Lines* lines = sender.next()) {
    CHECK_FALSE(has_ended);
    CHECK(lines->goes_on == !lines->text.ends_with('\n'));
    has_ended = lines->is_end;
    together += lines->text;
  }
  CHECK(has_ended);
  CHECK(together == text);
}

TEST_CASE(
    "the windows of many nodes together are limited, and each holds four messages of maximum "
    "size") {
  for (const int nodes : {0, 1, 2, 64, 65, 1000, 4096, 1 << 20}) {
    const std::size_t window = rendezvous::line_window_bytes(nodes);
    INFO(nodes << " nodes: " << window);
    CHECK(window >= kWindow);
    CHECK(window <= std::size_t{1} << 20);
    if (nodes <= 1024) CHECK(window * static_cast<std::size_t>(nodes) <= std::size_t{64} << 20);
    const Lines longest{.text = std::string(rendezvous::most_text_bytes(window), 'x')};
    CHECK(4 * cost_bytes(longest) <= window);
  }
}

TEST_CASE("the log collector forwards a node's lines with their origin and reports their end") {
  Taker sink;
  LogCollector desk(kWindow, &sink);
  const auto state = running_round();
  REQUIRE(desk.take(state, 11, {.round = 3, .local_rank = 1, .text = "hello\n"}));
  REQUIRE(sink.froms.size() == 1);
  CHECK(sink.froms[0].node_rank == 1);
  CHECK(sink.froms[0].rank == 3);
  CHECK(sink.froms[0].host == "host1");
  CHECK(sink.froms[0].role == "trainer");
  CHECK(sink.texts[0] == "hello\n");
  desk.forget(10);
  CHECK(sink.ended.empty());
  desk.forget(11);
  CHECK(sink.ended == std::vector<rendezvous::Peer>{11});
}

TEST_CASE(
    "the log collector rejects lines of unknown peers, other workers and other rounds, and excess "
    "lines") {
  Taker sink;
  LogCollector desk(kWindow, &sink);
  const auto state = running_round();
  CHECK_FALSE(desk.take(state, 12, {.round = 3}));
  CHECK_FALSE(desk.take(state, 10, {.round = 2}));
  CHECK_FALSE(desk.take(state, 10, {.round = 4}));
  CHECK_FALSE(desk.take(state, 10, {.round = 3, .local_rank = 2}));
  LogCollector without_sink(kWindow, nullptr);
  CHECK_FALSE(without_sink.take(state, 10, {.round = 3}));
  const Lines quarter{.round = 3, .text = std::string(rendezvous::most_text_bytes(kWindow), 'x')};
  for (int i = 0; i < 4; ++i) REQUIRE(desk.take(state, 10, quarter));
  CHECK_FALSE(desk.take(state, 10, {.round = 3}));
  CHECK(desk.taken(10, cost_bytes(quarter)) > 0);
  CHECK(desk.take(state, 10, {.round = 3}));
  CHECK(sink.texts.size() == 5);
}

}  // namespace drun::agent
