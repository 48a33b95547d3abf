#include "rendezvous/coordinator/node_line.h"

#include <algorithm>
#include <random>
#include <set>

#include "tests/support/catch.h"

namespace drun::rendezvous {
namespace {

using Names = std::vector<std::string>;

Names numbered(const std::vector<Applicant>& applicants, RankOrder order = RankOrder::Endpoint) {
  Names names;
  for (const std::size_t index : number_nodes(applicants, order))
    names.push_back(applicants[index].host);
  return names;
}

}  // namespace

TEST_CASE("numbers in names compare as numbers, at any length") {
  const auto in_order = [](const std::string& first, const std::string& second) {
    return numbered({{.host = first, .arrival = 1}, {.host = second, .arrival = 2}},
                    RankOrder::Natural);
  };
  const std::vector<Names> ascending = {{"node2", "node10"},
                                        {"node9.rack1", "node10.rack0"},
                                        {"a", "b"},
                                        {"node", "node1"},
                                        {"n99999999999999999998", "n99999999999999999999"}};
  for (const Names& names : ascending) CHECK(in_order(names[1], names[0]) == names);
  CHECK(in_order("node007", "node7") == Names{"node007", "node7"});
  CHECK(in_order("node7", "node007") == Names{"node7", "node007"});
}

TEST_CASE("the endpoint's node comes first, then the others by the numbers in their names") {
  std::vector<Applicant> nodes = {{.host = "n10", .arrival = 1},
                                  {.host = "n2", .arrival = 2},
                                  {.host = "n7", .arrival = 3, .is_coordinator = true}};
  CHECK(numbered(nodes) == Names{"n7", "n2", "n10"});
  CHECK(numbered(nodes, RankOrder::Natural) == Names{"n2", "n7", "n10"});
  CHECK(numbered(nodes, RankOrder::Arrival) == Names{"n10", "n2", "n7"});
}

TEST_CASE("nodes are ordered by arrival if a name has no number") {
  const std::vector<Applicant> nodes = {{.host = "n10", .arrival = 3},
                                        {.host = "alice", .arrival = 2},
                                        {.host = "n2", .arrival = 1, .is_coordinator = true}};
  CHECK(numbered(nodes) == Names{"n2", "alice", "n10"});
  CHECK(numbered(nodes, RankOrder::Natural) == Names{"alice", "n2", "n10"});
}

TEST_CASE("agents of one host are ordered by slot") {
  const std::vector<Applicant> nodes = {{.host = "n1", .slot = 2, .arrival = 1},
                                        {.host = "n1", .slot = 0, .arrival = 2},
                                        {.host = "n1", .slot = 1, .arrival = 3}};
  CHECK(number_nodes(nodes, RankOrder::Natural) == std::vector<std::size_t>{1, 2, 0});
}

TEST_CASE("nodes that stay keep their number, and new nodes fill the gaps") {
  const std::vector<Applicant> nodes = {
      {.host = "n9", .arrival = 1, .is_coordinator = true, .stays = true, .last_rank = 0},
      {.host = "n8", .arrival = 2, .stays = true, .last_rank = 3},
      {.host = "n1", .arrival = 3},
      {.host = "n5", .arrival = 4, .stays = true, .last_rank = 1}};
  CHECK(numbered(nodes) == Names{"n9", "n5", "n1", "n8"});
}

TEST_CASE("in a smaller world the last nodes move into the gaps") {
  const std::vector<Applicant> nodes = {
      {.host = "n0", .is_coordinator = true, .stays = true, .last_rank = 0},
      {.host = "n4", .stays = true, .last_rank = 4},
      {.host = "n3", .stays = true, .last_rank = 3},
      {.host = "n2", .stays = true, .last_rank = 2}};
  CHECK(numbered(nodes) == Names{"n0", "n4", "n2", "n3"});
}

TEST_CASE("a returning node gets its number back unless a node that stayed has it") {
  std::vector<Applicant> nodes = {
      {.host = "n0", .is_coordinator = true, .stays = true, .last_rank = 0},
      {.host = "n1", .arrival = 8},
      {.host = "n5", .arrival = 9, .last_rank = 1},
  };
  CHECK(numbered(nodes) == Names{"n0", "n5", "n1"});
  nodes[2].last_rank = 0;
  CHECK(numbered(nodes) == Names{"n0", "n1", "n5"});
}

TEST_CASE("every set of nodes is numbered without gaps, and nodes that stay keep their number") {
  const std::uint32_t seed = GENERATE(1u, 2u, 3u);
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int run = 0; run < 500; ++run) {
    std::vector<Applicant> nodes(1 + random() % 9);
    std::vector<int> ranks = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    std::shuffle(ranks.begin(), ranks.end(), random);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      nodes[i].host = "h" + std::to_string(random() % 4);
      nodes[i].arrival = random() % 4;
      nodes[i].stays = random() % 2 == 0;
      if (nodes[i].stays || random() % 3 == 0) nodes[i].last_rank = ranks[i];
    }
    for (const RankOrder order : {RankOrder::Endpoint, RankOrder::Natural, RankOrder::Arrival}) {
      const auto seats = number_nodes(nodes, order);
      CHECK(std::set<std::size_t>(seats.begin(), seats.end()).size() == nodes.size());
      for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
        const Applicant& node = nodes[seats[rank]];
        const bool could_keep = node.stays && node.last_rank < static_cast<int>(nodes.size());
        CHECK((!could_keep || node.last_rank == static_cast<int>(rank)));
      }
    }
  }
}

}  // namespace drun::rendezvous
