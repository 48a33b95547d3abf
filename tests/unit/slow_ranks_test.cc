// Ranks and nodes that are slower than the others: the decision, and the replacement of slow nodes.
#include "rendezvous/ranks/slow_ranks.h"

#include <functional>

#include "rendezvous/protocol/control_wire.h"
#include "tests/support/catch.h"
#include "tests/support/elastic_job.h"

namespace drun::rendezvous {
namespace {

using test::ElasticJob;
using test::RoundDriver;
using namespace std::chrono_literals;

constexpr int kUsual = 8000;  // ms of 10 s outside calls

// All nodes report each window in turn.
struct Watched {
  Watched(int node_count, int worker_count) : nodes(node_count), workers(worker_count) { begin(0); }
  void begin(int round) {
    std::vector<SlowRanks::Node> list;
    for (int node = 0; node < nodes; ++node)
      list.push_back({.host = "gpu" + std::to_string(node), .workers = workers, .roles = roles});
    slow.begin_round(round, list);
    window = 0;
  }
  NodeSpeed report(int node, const std::function<int(int)>& amount) const {
    NodeSpeed speed{
        .window = window, .length = 10s, .measure = measure, .has_progress = has_progress};
    for (int i = 0; i < workers; ++i) speed.amounts.push_back(amount(node * workers + i));
    return speed;
  }
  // Returns what is named in these windows.
  std::vector<SlowRank> windows(int count, const std::function<int(int)>& amount) {
    std::vector<SlowRank> named;
    for (; count > 0; --count, ++window) {
      for (int node = 0; node < nodes; ++node) {
        NodeSpeed speed = report(node, amount);
        if (node == poor_node) speed.stolen_permille = 200;
        for (const SlowRank& each : slow.take(node, speed)) named.push_back(each);
      }
    }
    return named;
  }

  int nodes;
  int workers;
  SpeedMeasure measure = SpeedMeasure::OwnTime;
  bool has_progress = true;
  int poor_node = -1;  // the hypervisor takes 20 % of its time
  std::vector<RoleShare> roles{};
  SlowRanks slow;
  int window = 0;
};

std::function<int(int)> with_slow(int rank, double factor, int usual = kUsual) {
  return [=](int each) { return each == rank ? static_cast<int>(usual * factor) : usual; };
}

}  // namespace

TEST_CASE("a rank that needs 12 % more time than the others for a minute is named once") {
  Watched job(2, 4);
  CHECK(job.windows(5, with_slow(5, 1.12)).empty());
  const auto named = job.windows(1, with_slow(5, 1.12));
  REQUIRE(named.size() == 1);
  CHECK(named[0] == SlowRank{.rank = 5,
                             .node_rank = 1,
                             .host = "gpu1",
                             .percent = 12,
                             .evidence = "the others wait for it 10 % of the time"});
  CHECK(text_of(named[0]) ==
        "rank 5 on node 1 (gpu1) is 12 % slower than the others: the others wait for it 10 % of "
        "the time");
  CHECK(job.windows(100, with_slow(5, 1.12)).empty());
  CHECK(job.slow.found() == named);
  job.begin(1);
  CHECK_FALSE(job.slow.found().at(0).is_slow);
  CHECK(job.windows(6, with_slow(5, 1.12)).empty());
  CHECK(job.slow.found().at(0).is_slow);
  job.windows(6, with_slow(5, 1));
  CHECK_FALSE(job.slow.found().at(0).is_slow);
}

TEST_CASE("a rank that is less than 10 % slower, or only for 50 s, is not named") {
  Watched job(2, 4);
  SECTION("less") { CHECK(job.windows(60, with_slow(5, 1.09)).empty()); }
  SECTION("only for 50 s") {
    CHECK(job.windows(50, with_slow(5, 1)).empty());
    CHECK(job.windows(5, with_slow(5, 1.3)).empty());
    CHECK(job.windows(60, with_slow(5, 1)).empty());
  }
}

TEST_CASE("if most ranks of a node are slow, the node is named") {
  Watched job(3, 4);
  const auto named = job.windows(6, [](int rank) { return rank / 4 == 1 ? 9600 : kUsual; });
  REQUIRE(named.size() == 1);
  CHECK_FALSE(named[0].rank);
  CHECK(named[0].node_rank == 1);
  CHECK(named[0].percent == 20);
  CHECK(job.slow.slow_nodes().at(0).first == 1);
}

TEST_CASE("of two ranks, the one that waits less is slow") {
  Watched job(2, 1);
  const auto named = job.windows(6, with_slow(0, 1.2));
  REQUIRE(named.size() == 1);
  CHECK(named[0].rank == 0);
}

TEST_CASE("a checkpoint or an evaluation on one rank is not slowness") {
  Watched job(2, 4);
  job.has_progress = false;
  CHECK(job.windows(60, [](int rank) { return rank == 0 ? 10'000 : 500; }).empty());
  job.has_progress = true;
  // A checkpoint of 10 s in every minute.
  for (int i = 0; i < 20; ++i) {
    CHECK(job.windows(1, [](int rank) { return rank == 0 ? 10'000 : 500; }).empty());
    CHECK(job.windows(5, with_slow(0, 1)).empty());
  }
}

TEST_CASE("a rank with a large share of unevenly distributed work is not named") {
  Watched job(2, 4);
  CHECK(job.windows(60, [](int rank) { return 6000 + 300 * rank; }).empty());
}

TEST_CASE("a rank for which the job hardly waits is not named") {
  Watched job(2, 4);
  CHECK(job.windows(60, with_slow(5, 1.25, 1000)).empty());
}

TEST_CASE("a slow rank is found although a step takes three windows") {
  Watched job(2, 4);
  std::vector<SlowRank> named;
  int windows = 0;
  for (; windows < 100 && named.empty(); ++windows) {
    job.has_progress = windows % 3 == 2;
    named = job.windows(1, [&](int rank) { return job.has_progress && rank != 5 ? 5000 : 10'000; });
  }
  REQUIRE(named.size() == 1);
  CHECK(named[0].rank == 5);
  CHECK(named[0].percent == 20);
  CHECK(windows <= 48);
}

TEST_CASE("ranks are compared only with ranks of the same program") {
  Watched job(2, 4);
  job.roles = {{"actor", 3}, {"learner", 1}};
  job.begin(0);
  const auto amount = [](int rank) { return rank % 4 == 3 ? 9000 : 3000; };
  CHECK(job.windows(60, amount).empty());
  const auto named = job.windows(6, [&](int rank) { return rank == 4 ? 4500 : amount(rank); });
  REQUIRE(named.size() == 1);
  CHECK(named[0].rank == 4);
}

TEST_CASE("a rank that makes fewer steps is named in an asynchronous job only") {
  Watched job(2, 2);
  job.measure = SpeedMeasure::Steps;
  SECTION("asynchronous") {
    const auto named = job.windows(6, [](int rank) { return rank == 3 ? 40 : 50; });
    REQUIRE(named.size() == 1);
    CHECK(named[0].percent == 25);
    CHECK(named[0].evidence == "a step takes it 0.25 s, 0.2 s is usual");
  }
  SECTION("synchronous: a rank is at most one step behind") {
    bool is_behind = false;
    for (int i = 0; i < 200; ++i) {
      is_behind = !is_behind;
      CHECK(job.windows(1, [=](int rank) { return rank == 3 ? (is_behind ? 1 : 3) : 2; }).empty());
    }
  }
  SECTION("a rank that counts something else, or does not count") {
    CHECK(job.windows(60, [](int rank) { return rank == 0 ? 2 : rank == 1 ? 0 : 64; }).empty());
  }
}

TEST_CASE("a rank for which others wait in most answers of NCCL is named") {
  Watched job(2, 4);
  job.measure = SpeedMeasure::Nccl;
  CHECK(job.windows(60, [&](int rank) { return rank == job.window % 8 ? 2 : 1; }).empty());
  const auto named = job.windows(6, [](int rank) { return rank == 6 ? 2 : 1; });
  REQUIRE(named.size() == 1);
  CHECK(named[0].rank == 6);
  CHECK(named[0].evidence == "the others wait for it in 100 % of NCCL's answers");
}

TEST_CASE("lack of processor time is the reason, and names a node if nothing else is known") {
  Watched job(3, 2);
  job.poor_node = 2;
  const std::string reason = "; the hypervisor takes 20 % of its node's processor time";
  SECTION("the reason") {
    const auto named = job.windows(6, with_slow(4, 1.2));
    REQUIRE(named.size() == 1);
    CHECK(named[0].evidence == "the others wait for it 16 % of the time" + reason);
  }
  SECTION("a node whose ranks keep up is not named") {
    CHECK(job.windows(60, with_slow(4, 1)).empty());
  }
  SECTION("nothing else is known") {
    job.measure = SpeedMeasure::None;
    const auto named = job.windows(6, [](int) { return 0; });
    REQUIRE(named.size() == 1);
    CHECK_FALSE(named[0].rank);
    CHECK(named[0].node_rank == 2);
    CHECK(named[0].percent == 25);
    CHECK(named[0].evidence == "it gets less processor time than it needs" + reason);
    CHECK(job.slow.slow_nodes().empty());  // it may not need that time
    job.poor_node = -1;
    job.measure = SpeedMeasure::OwnTime;
    SECTION("later its ranks are slow") {
      job.windows(6, [](int rank) { return rank >= 4 ? kUsual * 13 / 10 : kUsual; });
      REQUIRE(job.slow.slow_nodes().size() == 1);
      CHECK(job.slow.slow_nodes()[0].first == 2);
      CHECK_THAT(job.slow.slow_nodes()[0].second.evidence, StartsWith("the others wait for it"));
    }
    SECTION("later one of its ranks is slow") {
      const auto later = job.windows(6, with_slow(4, 1.3));
      REQUIRE(later.size() == 1);
      CHECK(later[0].rank == 4);
    }
  }
}

TEST_CASE("reports of no time are ignored, and take no memory") {
  Watched job(2, 2);
  for (int window = 100; window < 110; ++window)
    job.slow.take(1, {.window = window, .length = 0s, .measure = SpeedMeasure::OwnTime});
  CHECK(job.windows(6, with_slow(2, 1.2)).size() == 1);
}

TEST_CASE("a window is judged once, when all nodes have reported it, in any order") {
  Watched job(2, 2);
  const auto amount = with_slow(3, 1.5);
  std::vector<SlowRank> named;
  const auto take = [&](int node, int window) {
    job.window = window;
    for (const SlowRank& each : job.slow.take(node, job.report(node, amount)))
      named.push_back(each);
  };
  for (int window = 0; window < 20; ++window) take(0, window);
  CHECK(named.empty());
  for (int window = 20; window < 40; window += 2) {
    take(1, window);
    take(1, window);
    take(0, window);
    take(0, window);
  }
  CHECK(named.size() == 1);
  CHECK(job.slow.take(7, job.report(0, amount)).empty());
  NodeSpeed broken = job.report(0, amount);
  broken.window = 50;
  broken.amounts.assign(5000, 1 << 30);
  CHECK(job.slow.take(0, broken).empty());
  broken.length = 0ms;
  CHECK(job.slow.take(1, broken).empty());
}

// --- The round

namespace {

RoundSpec replacing_spec(int least, int most) {
  RoundSpec spec = test::elastic_spec(least, most);
  spec.elastic->exclude_slow = true;
  return spec;
}

// All nodes report six windows, in which the ranks of `node` (two) need 30 % more time.
void report_slow(ElasticJob& job, int node, int first_window = 0) {
  std::vector<RoundAction> all;
  for (int window = first_window; window < first_window + 6; ++window) {
    for (int each = 0; each < static_cast<int>(job.state.nodes.size()); ++each) {
      const Peer peer = job.state.nodes[static_cast<std::size_t>(each)].peer;
      const int amount = peer == RoundDriver::peer(node) ? 9100 : 7000;
      job.receive(peer, SpeedReport{job.state.round,
                                    {.window = window,
                                     .length = 10s,
                                     .measure = SpeedMeasure::OwnTime,
                                     .has_progress = true,
                                     .amounts = {amount, amount}}});
      all.insert(all.end(), job.actions.begin(), job.actions.end());
    }
  }
  job.actions = all;
}

}  // namespace

TEST_CASE("every node of the world learns of a slow node, and so do status and outcome") {
  ElasticJob job(test::elastic_spec(2, 3));
  for (int node = 0; node < 3; ++node) job.come(node);
  report_slow(job, 1);
  CHECK(job.state.phase == RoundPhase::Running);
  for (int node = 0; node < 3; ++node) {
    const auto told = job.sent<SlowFound>(RoundDriver::peer(node));
    REQUIRE(told.size() == 1);
    CHECK(told[0].slow.host == "host1");
  }
  report_slow(job, 1, 6);
  CHECK(job.sent<SlowFound>(RoundDriver::peer(0)).empty());
  job.ask(0, 1, QueryKind::Status);
  const std::uint64_t number = job.number_asked(0);
  for (int node = 0; node < 3; ++node) job.answer(node, number, "x");
  const auto census = decode_census(job.result(0, 1).answer);
  REQUIRE(census);
  CHECK(census->job.slow.at(0).host == "host1");
  for (int node = 0; node < 3; ++node) job.receive(RoundDriver::peer(node), AllReturned{0});
  const auto finish = job.sent<Finish>(RoundDriver::peer(2));
  REQUIRE(finish.size() == 1);
  CHECK(finish[0].outcome.slow.at(0).percent == 30);
}

TEST_CASE("with --exclude-slow a standby node replaces a slow one, without a restart") {
  ElasticJob job(replacing_spec(2, 3));
  for (int node = 0; node < 4; ++node) job.come(node);
  REQUIRE(job.state.phase == RoundPhase::Running);
  job.live(10s);
  report_slow(job, 1);
  REQUIRE(job.state.phase == RoundPhase::Stopping);
  const auto stop = job.sent<Stop>(RoundDriver::peer(2));
  REQUIRE(stop.size() == 1);
  CHECK_THAT(stop[0].cause, StartsWith("a standby node replaces node 1 (host1): "));
  std::vector<RoundAction> all;
  for (int node = 0; node < 3; ++node) {
    job.stopped(node);
    all.insert(all.end(), job.actions.begin(), job.actions.end());
  }
  job.actions = all;
  REQUIRE(job.state.phase == RoundPhase::Running);
  CHECK(job.state.restarts.empty());
  CHECK(job.world_of(3).has_value());
  CHECK_FALSE(job.world_of(1).has_value());
  const auto left_out = job.sent<NodeLeftOut>(RoundDriver::peer(0));
  REQUIRE(left_out.size() == 1);
  CHECK_THAT(left_out[0].node.reason, StartsWith("it is 30 % slower than the others: ") &&
                                          ContainsSubstring("(--exclude-slow)"));
  const auto finish = job.sent<Finish>(RoundDriver::peer(1));
  REQUIRE(finish.size() == 1);
  CHECK(std::holds_alternative<NodeLost>(finish[0].outcome.ending));
  job.come_as(200, 1, 99);
  CHECK(job.sent<Refused>(200).size() == 1);

  SECTION("the next one after 10 minutes") {
    job.come(4);
    job.live(60s);
    report_slow(job, 2);
    CHECK(job.state.phase == RoundPhase::Running);
    job.live(9min);
    report_slow(job, 2, 6);
    CHECK(job.state.phase == RoundPhase::Stopping);
  }
}

TEST_CASE("a slow node stays if no standby node can take its place, or if it coordinates") {
  ElasticJob job(replacing_spec(1, 3));
  for (int node = 0; node < 3; ++node) job.come(node);
  SECTION("no standby node") {
    report_slow(job, 1);
    CHECK(job.state.phase == RoundPhase::Running);
    SECTION("until one joins") {
      job.come(3);
      job.live(10s);
      report_slow(job, 1, 6);
      CHECK(job.state.phase == RoundPhase::Stopping);
    }
  }
  SECTION("the coordinator's node") {
    job.come(3);
    job.live(10s);
    report_slow(job, 0);
    CHECK(job.state.phase == RoundPhase::Running);
  }
  SECTION("the standby node leaves meanwhile") {
    job.come(3);
    job.live(10s);
    report_slow(job, 1);
    REQUIRE(job.state.phase == RoundPhase::Stopping);
    job.leave(RoundDriver::peer(3));
    for (int node = 0; node < 3; ++node) job.stopped(node);
    CHECK(job.state.phase == RoundPhase::Running);
    CHECK(job.world_of(1).has_value());
  }
  SECTION("workers have returned") {
    job.come(3);
    job.live(10s);
    job.receive(RoundDriver::peer(2), AllReturned{0});
    report_slow(job, 1);
    CHECK(job.state.phase == RoundPhase::Running);
  }
}

}  // namespace drun::rendezvous
