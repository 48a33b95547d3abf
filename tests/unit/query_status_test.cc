// The job status (census) as requested on any of its nodes.
#include "rendezvous/coordinator/node_queries.h"
#include "rendezvous/protocol/control_wire.h"
#include "tests/support/catch.h"
#include "tests/support/elastic_job.h"

namespace drun::rendezvous {
namespace {

using test::aged_failure;
using test::RoundDriver;
using namespace std::chrono_literals;

RoundDriver three_nodes() { return RoundDriver(test::fixed_spec(3, 2)); }

Census only_census(const RoundDriver& round, int node, std::uint64_t number) {
  const std::optional<Census> census = decode_census(round.result(node, number).answer);
  REQUIRE(census);
  return *census;
}

}  // namespace

TEST_CASE("a status query is answered with all nodes when all of them have answered") {
  RoundDriver round = three_nodes();
  round.join_all();
  round.ask(1, 7, QueryKind::Status);
  const std::uint64_t asked = round.number_asked(0);
  CHECK(round.number_asked(2) == asked);
  round.ask(2, 9, QueryKind::Status);  // joins the census in progress
  CHECK(round.sent<NodeQuery>(RoundDriver::peer(0)).empty());
  for (const int node : {2, 0}) {
    round.answer(node, asked, "running");
    CHECK_FALSE(round.has_result(1));
  }
  round.answer(1, asked, "stopping");
  CHECK(only_census(round, 2, 9) == only_census(round, 1, 7));
  const Census told = only_census(round, 1, 7);
  CHECK(told.job.phase == JobPhase::Running);
  CHECK(told.job.round == 0);
  CHECK(told.job.world_size == 6);
  CHECK(told.job.restarts_left == 2);
  REQUIRE(told.nodes.size() == 3);
  CHECK(told.nodes[1].node_rank == 1);
  CHECK(told.nodes[1].host == "host1");
  CHECK(told.nodes[1].workers == 2);
  CHECK(told.nodes[1].answer == "stopping");
  CHECK(told.nodes[2].presence == NodePresence::Answered);
}

TEST_CASE("a node that does not answer is shown as silent after two seconds and is not dropped") {
  RoundDriver round = three_nodes();
  round.join_all();
  round.ask(1, 7, QueryKind::Status);
  const std::uint64_t asked = round.number_asked(0);
  round.answer(1, asked, "running");
  round.answer(1, asked, "x");      // a duplicate
  round.answer(0, asked + 1, "x");  // an unknown census
  REQUIRE(*deadline(round.state) <= round.now + 2s);
  round.wait(1999ms);
  CHECK(round.actions.empty());
  round.wait(1ms);
  const Census told = only_census(round, 1, 7);
  CHECK(told.nodes[0].presence == NodePresence::Asked);
  CHECK(told.nodes[0].heard == 2s);
  CHECK(told.nodes[1].answer == "running");
  round.answer(0, asked, "running");  // late
  CHECK(round.actions.empty());
  CHECK(round.state.phase == RoundPhase::Running);
}

TEST_CASE("a census does not wait for a node that is lost meanwhile") {
  RoundDriver round = three_nodes();
  round.join_all();
  round.ask(1, 7, QueryKind::Status);
  const std::uint64_t asked = round.number_asked(0);
  for (const int node : {0, 1}) round.answer(node, asked, "x");
  round.leave(RoundDriver::peer(2));
  const Census told = only_census(round, 1, 7);
  CHECK(told.nodes[2].presence == NodePresence::Lost);
  CHECK(told.job.phase == JobPhase::Stopping);
}

TEST_CASE("a query within half a second gets the same answer without another census") {
  RoundDriver round = three_nodes();
  round.join_all();
  round.ask(1, 7, QueryKind::Status);
  const std::uint64_t asked = round.number_asked(0);
  for (const int node : {0, 1, 2}) round.answer(node, asked, "x");
  round.now += 499ms;
  round.ask(0, 1, QueryKind::Status);
  CHECK(only_census(round, 0, 1).nodes.size() == 3);
  CHECK(round.count<SendAll>() == 0);
  round.now += 1ms;
  round.ask(0, 2, QueryKind::Status);
  CHECK(round.number_asked(2) == asked + 1);
}

TEST_CASE("ten thousand queries within half a second share one encoded answer") {
  RoundSpec spec = three_nodes().state.spec;
  spec.node_count = 2000;
  RoundDriver round(spec);
  round.join_all();
  round.ask(1, 0, QueryKind::Status);
  const std::uint64_t asked = round.number_asked(0);
  for (int node = 0; node < 2000; ++node) round.answer(node, asked, "x");
  struct Queued {
    std::string head;
    SharedResult::Bytes body;
  };
  std::vector<Queued> queues;
  std::shared_ptr<const QueryResult> encoded;
  std::optional<SharedResult> frames;
  std::size_t encodings = 0;
  for (std::uint64_t i = 1; i <= 10'000; ++i) {
    round.ask(static_cast<int>(i % 2000), i, QueryKind::Status);
    REQUIRE(round.actions.size() == 1);
    const auto& send = std::get<SendResult>(round.actions[0]);
    if (send.result != encoded) {  // as the server does
      encoded = send.result;
      frames.emplace(*encoded);
      ++encodings;
    }
    REQUIRE(send.requesters.size() == 1);
    CHECK(send.requesters[0].number == i);
    queues.push_back({frames->head(i), frames->body()});
  }
  CHECK(encodings == 1);
  std::size_t bytes = queues.front().body->size();
  for (const Queued& queued : queues) {
    bytes += queued.head.size();
    if (queued.body != queues.front().body) bytes += queued.body->size();
  }
  CHECK(bytes < kMostCensusBytes + 10'000 * 16);
}

TEST_CASE("queries beyond the limit are answered with a note") {
  RoundDriver round = three_nodes();
  round.join_all();
  for (std::size_t i = 0; i < kMostRequestsOfMember; ++i) round.ask(1, i, QueryKind::Status);
  round.ask(1, 99, QueryKind::Status);
  CHECK(round.result(1, 99).note == "too many ask at the same time");
}

TEST_CASE("before the first world a census lists the missing nodes") {
  RoundDriver round = three_nodes();
  round.join(1);
  round.ask(1, 7, QueryKind::Status);
  round.answer(1, round.number_asked(1), "x");
  const Census told = only_census(round, 1, 7);
  CHECK(told.job.phase == JobPhase::Joining);
  CHECK_FALSE(told.job.round);
  CHECK(told.job.joined_nodes == 1);
  CHECK(told.missing_ranks == std::vector<int>{0, 2});
}

TEST_CASE("an answer that is too long for a census closes the connection") {
  RoundDriver round = three_nodes();
  round.join_all();
  round.ask(1, 7, QueryKind::Status);
  round.answer(0, round.number_asked(0), std::string(kMostStatusBytes + 1, 'x'));
  CHECK(round.dropped(RoundDriver::peer(0)));
}

TEST_CASE("the last failure is remembered in later rounds, without its long texts") {
  RoundDriver round = three_nodes();
  round.join_all();
  AgedFailure failed = aged_failure(2);
  failed.failure.stderr_tail = {"boom"};
  round.receive(RoundDriver::peer(2), Failed{0, failed});
  CHECK(facts_of(round.state, round.now).last_failure->rank == 4);
  for (const int node : {0, 1}) round.receive(RoundDriver::peer(node), Stopped{0, {}, 0});
  round.receive(RoundDriver::peer(2), Stopped{0, {failed}, 0});
  const JobFacts facts = facts_of(round.state, round.now);
  CHECK(facts.round == 1);
  CHECK(facts.restarts == 1);
  CHECK(facts.restarts_left == 1);
  REQUIRE(facts.last_failure);
  CHECK(facts.last_failure->node_rank == 2);
  CHECK(facts.last_failure->stderr_tail.empty());
}

TEST_CASE("spares are queried, may query, and are listed after the nodes of the world") {
  test::ElasticJob job(1, 2);
  for (const int node : {0, 1, 2}) job.come(node);
  job.ask(2, 7, QueryKind::Status);
  const std::uint64_t asked = job.number_asked(0);
  CHECK(job.number_asked(2) == asked);
  for (const int node : {0, 1, 2}) job.answer(node, asked, "x");
  const Census told = only_census(job, 2, 7);
  CHECK(told.job.joined_nodes == 2);
  CHECK(told.job.spares == 1);
  REQUIRE(told.nodes.size() == 3);
  CHECK(told.nodes[2].host == "host2");
  CHECK_FALSE(told.nodes[2].node_rank);
}

TEST_CASE("a node that has received the outcome is not queried") {
  RoundDriver round = three_nodes();
  round.join_all();
  round.receive(RoundDriver::peer(0), Signaled{15});
  for (const int node : {0, 1, 2}) round.receive(RoundDriver::peer(node), Stopped{0, {}, 0});
  REQUIRE(round.state.phase == RoundPhase::Ending);
  round.ask(1, 7, QueryKind::Status);
  CHECK(only_census(round, 1, 7).job.phase == JobPhase::Finishing);
}

TEST_CASE("the census of a very large job fits into a frame and counts the nodes it omits") {
  RoundSpec spec = three_nodes().state.spec;
  spec.node_count = 5000;
  RoundDriver round(spec);
  for (int node = 0; node < 5000; ++node) {
    Hello hello = round.hello(node);
    hello.host.assign(256, 'h');
    round.join(RoundDriver::peer(node), hello);
  }
  const Census census = census_of(round.state, OpenQuery{}, round.now);
  CHECK(census.nodes.size() > 500);
  CHECK(census.nodes.size() + static_cast<std::size_t>(census.nodes_not_listed) == 5000);
  CHECK(encode_census(census).size() <= kMostResultBytes);
  CHECK(decode_census(encode_census(census)) == census);
}

TEST_CASE("an outcome has the time of the job, which continues after the nodes have reported") {
  RoundDriver round = three_nodes();
  round.join_all();
  const auto report = [&round](int node, const NodeTimes& times) {
    round.receive(RoundDriver::peer(node), TimesReport{times});
    round.receive(RoundDriver::peer(node), AllReturned{0});
  };
  report(0, {.phases = {1s, 0s, 0s, 0s, 4s}, .current = Phase::Waiting});
  round.now += 2s;
  report(1, {.phases = {1s, 0s, 0s, 0s, 6s}, .current = Phase::Waiting});
  CHECK(round.sent<Finish>(RoundDriver::peer(0)).empty());
  round.now += 1s;
  report(2, {.phases = {1s, 0s, 0s, 0s, 7s}, .current = Phase::Waiting});
  const JobTimes times = round.sent<Finish>(RoundDriver::peer(0)).at(0).outcome.times;
  CHECK(times.nodes == 3);
  CHECK(times.mean[index_of(Phase::Waiting)] == 2333ms);  // of 4 s, 2 s and 1 s
  CHECK(times.longest[index_of(Phase::Waiting)] == LongestTime{4s, 0, {}});
  CHECK(times.longest[index_of(Phase::Running)] == LongestTime{7s, 2, {}});
}

TEST_CASE("a node that waits for the outcome of a failed job is not restarting") {
  RoundDriver round = RoundDriver(test::fixed_spec(2, 0));
  round.join_all();
  round.receive(RoundDriver::peer(1), TimesReport{{.current = Phase::Restarting}});
  round.receive(RoundDriver::peer(1), Stopped{0, {aged_failure(1)}, 0});
  round.now += 3s;
  round.receive(RoundDriver::peer(0), TimesReport{{.current = Phase::Restarting}});
  round.receive(RoundDriver::peer(0), Stopped{0, {}, 0});
  const JobTimes times = round.sent<Finish>(RoundDriver::peer(0)).at(0).outcome.times;
  CHECK(times.longest[index_of(Phase::Stopping)] == LongestTime{3s, 1, {}});
  CHECK(times.longest[index_of(Phase::Restarting)] == LongestTime{});
}

}  // namespace drun::rendezvous
