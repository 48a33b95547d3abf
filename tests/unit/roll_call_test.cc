#include "rendezvous/protocol/membership_text.h"

#include "tests/support/catch.h"

namespace drun::rendezvous {

using std::chrono_literals::operator""s;

TEST_CASE(
    "the progress text shows how many nodes have joined, which are missing, and for how long") {
  const Waiting fixed{
      .node_count = 4, .joined_count = 2, .joined = {{0, "a"}, {2, "c"}}, .missing = {1, 3}};
  CHECK(progress_text(fixed, 12s) == "2 of 4 nodes joined (a, c), waiting for node 1, node 3; 12s");
  const Waiting many{.node_count = 1000, .joined_count = 500, .joined = {{0, "a"}}, .missing = {7}};
  CHECK(progress_text(many, 3720s) ==
        "500 of 1000 nodes joined (a and 499 more), waiting for node 7 and 499 more; 1h2m");
  const Waiting elastic{
      .node_count = 4, .joined_count = 1, .joined = {{0, "a"}}, .min_node_count = 2};
  CHECK(progress_text(elastic, 5s) == "1 of 2 to 4 nodes joined (a); 5s");
}

// A node that has failed before may delay the world even if enough nodes have joined.
TEST_CASE("an elastic job's waiting line has the longest wait") {
  Waiting waiting{.node_count = 4, .joined_count = 1, .joined = {{0, "a"}}, .min_node_count = 2};
  waiting.left = 599s;
  CHECK(elastic_waiting_text(waiting, "a:29400") ==
        "waiting for nodes: 1 of 2 to 4 nodes joined at a:29400 (a); 9m59s left");
  waiting.joined_count = 2;
  waiting.joined.push_back({0, "b"});
  CHECK(elastic_waiting_text(waiting, "a:29400") ==
        "2 of 2 to 4 nodes joined at a:29400 (a, b); waiting up to 9m59s for more");
}

}  // namespace drun::rendezvous
