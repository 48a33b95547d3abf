// Tests the branches of a job over ssh and the messages between a launcher and a relay.
#include "launcher/hosts/host_plan.h"

#include <random>

#include "launcher/remote/agent_protocol.h"
#include "tests/support/catch.h"
#include "tests/support/random_bytes.h"

namespace drun::hosts {
namespace {

using test::random_bytes;

std::string sizes(std::size_t hosts, std::optional<int> wished = std::nullopt) {
  std::string text;
  std::size_t next = 0;
  for (const auto& branch : branches_of(hosts, wished)) {
    for (const std::size_t host : branch) CHECK(host == next++);
    text += (text.empty() ? "" : " ") + std::to_string(branch.size());
  }
  if (!text.empty()) CHECK(next == hosts);
  return text;
}

}  // namespace

TEST_CASE("hosts are spread over branches evenly and in order") {
  CHECK(sizes(6, 2) == "3 3");
  CHECK(sizes(7, 3) == "3 2 2");
  CHECK(sizes(3, 1) == "3");
  CHECK(sizes(2, 1) == "2");
  CHECK(sizes(3, 3).empty());
  CHECK(sizes(3, 64).empty());
  CHECK(sizes(1, 1).empty());
  CHECK(sizes(64).empty());
  CHECK(sizes(65) == "8 7 7 7 8 7 7 7 7");
  for (std::size_t hosts = 65; hosts < 2000; hosts += 61) sizes(hosts);
}

TEST_CASE("the plan names the first host of each branch") {
  HostPlan plan;
  for (const char* name : {"a", "b", "c", "d"}) plan.nodes.push_back({.name = name});
  plan.branches = branches_of(4, 2);
  CHECK(branches_text(plan) == "2 branches: a (1 behind it), c (1 behind it)");
}

TEST_CASE("commands to a relay are decoded unchanged") {
  using Order = RelayCommand::Order;
  for (const Order order : {Order::Start, Order::To, Order::Eof, Order::Kill}) {
    const bool has_bytes = order == Order::Start || order == Order::To;
    const RelayCommand command{.order = order, .host = 77, .bytes = has_bytes ? 5U : 0U};
    const std::string line = to_line(command);
    REQUIRE(line.ends_with('\n'));
    CHECK(parse_relay_command(line.substr(0, line.size() - 1)) == command);
  }
  for (const char* bad :
       {"", "to", "to 1", "to 1 ", "to 1 2 3", "to x 2", "to 1 99999999999", "eof", "eof 1 2",
        "kill -1", "start 99999999999 1", "more 1 2", " to 1 2"}) {
    INFO(bad);
    CHECK_FALSE(parse_relay_command(bad));
  }
  CHECK(parse_relay_line("relay 3") == RelayLine{.protocol = 3, .nonce = ""});
  CHECK(relay_line("ab12") == "relay " + std::to_string(kProtocol) + " ab12\n");
  CHECK(parse_relay_line("relay 3 ab12") == RelayLine{.protocol = 3, .nonce = "ab12"});
  for (const char* bad : {"relay", "relay ", "relay x", "relay 3 4 5", "relay 3x", "{}"})
    CHECK_FALSE(parse_relay_line(bad));
}

TEST_CASE("a relay's start and end messages are decoded unchanged for any bytes") {
  std::mt19937 random(Catch::rngSeed());
  for (int i = 0; i < 100; ++i) {
    const RelayStart start{.argv = {random_bytes(random), random_bytes(random)},
                           .name = random_bytes(random),
                           .first_line = random_bytes(random),
                           .nonce = random_bytes(random)};
    const auto started = parse(to_text(start));
    REQUIRE(started);
    CHECK(std::get<RelayStart>(*started) == start);
    CHECK(parse_ended(ended_text(i)) == i);
  }
  CHECK_FALSE(parse("{}"));
  for (const char* bad : {"", "x", "-1", "1 ", "256", "99999999999999999999"})
    CHECK_FALSE(parse_ended(bad));
}

}  // namespace drun::hosts
