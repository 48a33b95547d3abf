#include "launcher/hosts/host_pool.h"

#include "tests/support/catch.h"

namespace drun::hosts {
namespace {

Pool pool(const std::string& list) { return *parse_hosts(list); }

// Returns text such as "a2 b1", with '?' for a host whose agent determines the count.
std::string spread_text(const std::string& list, const SpreadRequest& wish) {
  const Result<std::vector<Share>> shares = spread(pool(list), wish);
  if (!shares) return shares.error().message;
  std::string text;
  for (const Share& share : *shares)
    text += (text.empty() ? "" : " ") + share.host.name +
            (share.workers ? std::to_string(*share.workers) : "?");
  return text;
}

const MapBy kNode{.order = MapBy::Order::Node, .per_node = std::nullopt};

}  // namespace

TEST_CASE("without -np every host has one worker per slot, or one worker") {
  CHECK(spread_text("a:2,b", {}) == "a2 b1");
  CHECK(spread_text("a:2,b", {.has_per_node_word = true}) == "a? b?");
}

TEST_CASE("the option -np fills the hosts in order, or distributes workers round-robin") {
  CHECK(spread_text("a:4,b:4,c:4", {.np = 6}) == "a4 b2");
  CHECK(spread_text("a:4,b:4,c:4", {.np = 12}) == "a4 b4 c4");
  CHECK(spread_text("a:4,b:4,c:4", {.np = 7, .map_by = kNode}) == "a3 b2 c2");
  CHECK(spread_text("a:1,b:4,c:2", {.np = 6, .map_by = kNode}) == "a1 b3 c2");
  CHECK(spread_text("a,b,c", {.np = 2}) == "a1 b1");
}

TEST_CASE("more workers than slots are rejected with both numbers, unless --oversubscribe is set") {
  CHECK(spread_text("a:2,b", {.np = 4}) ==
        "-np 4: the hosts have 3 slots (a 2, b 1); add slots, such as a:8, or set --oversubscribe");
  CHECK(spread_text("a:2,b", {.np = 8, .oversubscribe = true}) == "a5 b3");
  CHECK_THAT(spread_text("a:2", {.per_node = 4}), ContainsSubstring("a has 2 slots"));
  CHECK(spread_text("a:2", {.per_node = 4, .oversubscribe = true}) == "a4");
  CHECK_THAT(spread_text("n[1-20]", {.np = 21}), ContainsSubstring("n8 1, ...)"));
}

TEST_CASE("a worker count per host applies to all hosts, or until -np is reached") {
  const MapBy three{.order = MapBy::Order::Slot, .per_node = 3};
  CHECK(spread_text("a,b:8", {.per_node = 3}) == "a3 b3");
  CHECK(spread_text("a,b", {.map_by = three}) == "a3 b3");
  CHECK(spread_text("a,b,c", {.np = 4, .map_by = three}) == "a3 b1");
  CHECK_THAT(spread_text("a,b", {.np = 7, .map_by = three}), ContainsSubstring("only 6"));
  CHECK_THAT(spread_text("a", {.per_node = 2, .map_by = three}), ContainsSubstring("conflict"));
  CHECK_THAT(spread_text("a", {.np = 2, .has_per_node_word = true}), ContainsSubstring("conflict"));
}

TEST_CASE("more workers than ranks can number are rejected") {
  CHECK_THAT(spread_text("n[1-32768]", {.per_node = 65536}),
             ContainsSubstring("2147483648 workers on 32768 hosts"));
  CHECK_THAT(spread_text("n[1-65536]:65536", {}), ContainsSubstring("4294967296 workers"));
}

TEST_CASE("selected devices count as a host's slots") {
  Pool chosen = pool("a:4,b:4");
  chosen[0].devices = {1, 3};
  const auto shares = spread(chosen, {});
  REQUIRE(shares);
  CHECK((*shares)[0].workers == 2);
  CHECK((*shares)[1].workers == 4);
  CHECK_FALSE(spread(chosen, {.np = 7}));
}

}  // namespace drun::hosts
