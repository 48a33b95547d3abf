#include "agent/status/log_query.h"
#include "rendezvous/coordinator/node_queries.h"
#include "tests/support/catch.h"
#include "tests/support/member_driver.h"
#include "tests/support/round_driver.h"

namespace drun::rendezvous {
namespace {

using test::RoundDriver;
using test::running_round;
using namespace std::chrono_literals;

// Nodes have two workers each: rank 3 is on node 1.
void ask_for(RoundDriver& round, int node, std::uint64_t number, int rank) {
  round.receive(RoundDriver::peer(node), Query{number, QueryKind::Log, rank, "part"});
}

}  // namespace

TEST_CASE("a query of a log goes to the node of its rank, and the answer to the node that asked") {
  RoundDriver round = running_round(3);
  ask_for(round, 2, 7, 3);
  CHECK(round.message_count() == 1);
  const std::uint64_t number = round.number_asked(1);
  CHECK(round.sent<NodeQuery>(RoundDriver::peer(1))[0].question == "part");
  round.answer(1, number, "hello");
  CHECK(round.result(2, 7) == QueryResult{7, "", "hello"});
  round.answer(1, number, "hello");  // a second answer is dropped
  CHECK(round.actions.empty());
}

TEST_CASE("a query of a log gets a note if its node does not answer in time or is lost") {
  RoundDriver round = running_round(3);
  ask_for(round, 0, 1, 5);
  const std::uint64_t number = round.number_asked(2);
  round.answer(1, number, "wrong");  // another node cannot answer for it
  CHECK_FALSE(round.has_result(0));
  round.wait(rules_of(QueryKind::Log).limit);
  CHECK(round.result(0, 1).note == "node 2 (host2): no answer in 5 s");
  round.answer(2, number, "late");
  CHECK_FALSE(round.has_result(0));

  ask_for(round, 0, 2, 2);
  round.leave(RoundDriver::peer(1));
  CHECK_THAT(round.result(0, 2).note, ContainsSubstring("node 1 (host1): lost, "));
}

TEST_CASE("queries of unknown ranks, and too many at a time, are refused") {
  RoundDriver round = running_round(2);
  ask_for(round, 1, 1, 4);
  CHECK(round.result(1, 1).note == "there is no rank 4");
  for (std::uint64_t i = 0; i < kMostRequestsOfMember; ++i) {
    ask_for(round, 1, i, 0);
    CHECK_FALSE(round.has_result(1));
  }
  ask_for(round, 1, 99, 0);
  CHECK_THAT(round.result(1, 99).note, ContainsSubstring("too many"));
  // Another node still has room, and so have queries of another kind.
  ask_for(round, 0, 1, 0);
  CHECK_FALSE(round.has_result(0));
  round.ask(1, 100, QueryKind::Status);
  CHECK_FALSE(round.has_result(1));
}

TEST_CASE("requests and answers about log files survive the local socket") {
  using agent::log_answer;
  using agent::log_request;
  using agent::LogPart;
  using agent::LogQuery;
  using agent::parse_log_answer;
  using agent::parse_log_request;
  for (const LogQuery& query : {LogQuery{}, LogQuery{9, 2, true, 0xFFFFFFFFFFFFFFFFU}})
    CHECK(parse_log_request(log_request(query)) == query);
  for (const char* const wrong : {"", "\n", "1", "1 - out\n", "1 - out x\n", "-1 - out 0\n",
                                  "1 - both 0\n", "1 - out 0 0\n", "1 -2 out 0\n"})
    CHECK_FALSE(parse_log_request(wrong).has_value());
  const LogPart part{2, 70'000, std::string("a\nb\0\xff", 5), "[\xc3\xa4]:", ""};
  CHECK(parse_log_answer(log_answer(part)) == part);
  const LogPart large{.text = std::string(agent::kMostLogPartBytes, '\xff'),
                      .label = std::string(300, '\x01'),
                      .note = std::string(5000, '\x01')};
  CHECK(log_answer(large).size() <= std::size_t{96} << 10);
  CHECK_FALSE(parse_log_answer("").has_value());
  CHECK_FALSE(parse_log_answer("{}\ntext").has_value());
}

}  // namespace drun::rendezvous
