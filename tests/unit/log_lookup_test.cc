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
LogLookup lookup_at(const RoundDriver& round, int node) {
  const auto told = round.sent<LogLookup>(RoundDriver::peer(node));
  REQUIRE(told.size() == 1);
  return told[0];
}

LogAnswer answer_to(const RoundDriver& round, int node) {
  const auto told = round.sent<LogAnswer>(RoundDriver::peer(node));
  REQUIRE(told.size() == 1);
  return told[0];
}

}  // namespace

TEST_CASE("a log query goes to the node of its rank, and the answer to the node that asked") {
  RoundDriver round = running_round(3);
  const LogQuery query{.rank = 3, .round = 0, .is_stderr = true, .offset = 70};
  round.receive(RoundDriver::peer(2), LogRequest{7, query});
  const LogLookup lookup = lookup_at(round, 1);
  CHECK(lookup.query == query);
  const LogPart part{.size_bytes = 75, .text = "hello", .label = "[3]"};
  round.receive(RoundDriver::peer(1), LogReply{lookup.lookup, part});
  CHECK(answer_to(round, 2) == LogAnswer{7, part});
  // A second answer is dropped.
  round.receive(RoundDriver::peer(1), LogReply{lookup.lookup, part});
  CHECK(round.sent<LogAnswer>(RoundDriver::peer(2)).empty());
}

TEST_CASE("a log query is answered with a note if its node does not answer in time or is lost") {
  RoundDriver round = running_round(3);
  round.receive(RoundDriver::peer(0), LogRequest{1, {.rank = 5}});
  const LogLookup lookup = lookup_at(round, 2);
  // Another node cannot answer for it.
  round.receive(RoundDriver::peer(1), LogReply{lookup.lookup, {.text = "wrong"}});
  CHECK(round.sent<LogAnswer>(RoundDriver::peer(0)).empty());
  round.wait(kLogLimit);
  CHECK_THAT(answer_to(round, 0).part.note, ContainsSubstring("node 2 has not answered in 5 s"));
  round.receive(RoundDriver::peer(2), LogReply{lookup.lookup, {.text = "late"}});
  CHECK(round.sent<LogAnswer>(RoundDriver::peer(0)).empty());

  round.receive(RoundDriver::peer(0), LogRequest{2, {.rank = 2}});
  round.leave(RoundDriver::peer(1));
  CHECK_THAT(answer_to(round, 0).part.note, ContainsSubstring("lost"));
}

TEST_CASE("log queries of unknown ranks, and too many at a time, are refused") {
  RoundDriver round = running_round(2);
  round.receive(RoundDriver::peer(1), LogRequest{1, {.rank = 4}});
  CHECK_THAT(answer_to(round, 1).part.note, ContainsSubstring("there is no rank 4"));
  for (std::uint64_t i = 0; i < kMostLogLookupsOfOne; ++i) {
    round.receive(RoundDriver::peer(1), LogRequest{i, {.rank = 0}});
    CHECK(round.sent<LogAnswer>(RoundDriver::peer(1)).empty());
  }
  round.receive(RoundDriver::peer(1), LogRequest{99, {.rank = 0}});
  CHECK_THAT(answer_to(round, 1).part.note, ContainsSubstring("too many"));
  // Another node still has room.
  round.receive(RoundDriver::peer(0), LogRequest{1, {.rank = 0}});
  CHECK(round.sent<LogAnswer>(RoundDriver::peer(0)).empty());
}

TEST_CASE("requests and answers about log files survive the local socket") {
  using agent::log_answer;
  using agent::log_request;
  using agent::parse_log_answer;
  using agent::parse_log_request;
  for (const LogQuery& query : {LogQuery{}, LogQuery{9, 2, true, 0xFFFFFFFFFFFFFFFFU}})
    CHECK(parse_log_request(log_request(query)) == query);
  for (const char* const wrong : {"", "\n", "1", "1 - out\n", "1 - out x\n", "-1 - out 0\n",
                                  "1 - both 0\n", "1 - out 0 0\n", "1 -2 out 0\n"})
    CHECK_FALSE(parse_log_request(wrong).has_value());
  const LogPart part{2, 70'000, std::string("a\nb\0\xff", 5), "[\xc3\xa4]:", ""};
  CHECK(parse_log_answer(log_answer(part)) == part);
  CHECK_FALSE(parse_log_answer("").has_value());
  CHECK_FALSE(parse_log_answer("{}\ntext").has_value());
}

}  // namespace drun::rendezvous
