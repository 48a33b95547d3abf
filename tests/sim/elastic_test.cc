// Elastic jobs, many times. DRUN_SIM_RUNS says how often (of random weather; 400 without it),
// DRUN_SIM_SEED from which seed on: with DRUN_SIM_RUNS=1 it replays one.
#include <map>

#include "tests/sim/elastic_cluster.h"
#include "tests/sim/runs.h"
#include "tests/support/catch.h"

namespace drun::test {
namespace {

struct ElasticTally {
  int runs = 0;
  int most_rounds = 0;
  int most_restarts = 0;
  int hangs_shown = 0;
  int censuses_told = 0;
  std::map<std::string, int> endings;
};

void run_one(const ElasticWeather& weather, std::uint32_t seed, ElasticTally& tally) {
  ElasticCluster cluster(weather, seed);
  cluster.run();
  if (cluster.broken().empty()) cluster.check_end();
  INFO("replay with DRUN_SIM_RUNS=1 DRUN_SIM_SEED=" << seed);
  REQUIRE(cluster.broken() == "");
  ++tally.runs;
  tally.most_rounds = std::max(tally.most_rounds, cluster.rounds());
  tally.most_restarts = std::max(tally.most_restarts, cluster.restarts());
  tally.hangs_shown += cluster.hangs_shown();
  tally.censuses_told += cluster.censuses_told();
  const char* const names[] = {"succeeded", "failed", "interrupted", "lost", "not run"};
  if (const auto outcome = cluster.outcome()) ++tally.endings[names[outcome->ending.index()]];
}

ElasticTally run_elastic(const ElasticWeather& weather, int runs) {
  ElasticTally tally;
  for (int i = 1; i <= runs / kRunShare; ++i)
    run_one(weather, static_cast<std::uint32_t>(i), tally);
  return tally;
}

}  // namespace

TEST_CASE("in fair weather an elastic job succeeds in one round, spares or not") {
  ElasticWeather weather;
  weather.hosts = GENERATE(2, 3, 6);
  const ElasticTally tally = run_elastic(weather, 50);
  CHECK(tally.endings == std::map<std::string, int>{{"succeeded", tally.runs}});
  CHECK(tally.most_rounds == 1);
}

TEST_CASE("late nodes and lost nodes make new rounds and use up no restart") {
  ElasticWeather weather;
  weather.hosts = 6;
  weather.max_nodes = 5;
  weather.late_hosts = 2;
  weather.kills = 2;
  weather.comeback_chance = 100;
  const ElasticTally tally = run_elastic(weather, 100);
  CHECK(tally.endings.at("succeeded") > tally.runs / 2);
  CHECK(tally.most_restarts == 0);
  CHECK(tally.most_rounds > 2);
}

TEST_CASE("a second agent with the identity of a living one is refused and disturbs no round") {
  ElasticWeather weather;
  weather.hosts = 4;
  weather.max_nodes = 4;
  weather.twins = 20;
  const ElasticTally tally = run_elastic(weather, 100);
  CHECK(tally.endings == std::map<std::string, int>{{"succeeded", tally.runs}});
  CHECK(tally.most_rounds == 1);
}

TEST_CASE(
    "an agent that is started again at once is let in although its old connection is silent") {
  ElasticWeather weather;
  weather.hosts = 4;
  weather.max_nodes = 4;
  weather.reboots = 3;
  const ElasticTally tally = run_elastic(weather, 100);
  CHECK(tally.endings == std::map<std::string, int>{{"succeeded", tally.runs}});
  CHECK(tally.most_rounds > 1);
}

TEST_CASE("failures of an elastic job restart it as often as allowed, and the first is kept") {
  ElasticWeather weather;
  weather.hosts = 5;
  weather.max_nodes = 4;
  weather.failure_chance = 30;
  weather.slow_chance = 50;
  weather.max_restarts = GENERATE(0, 2);
  const ElasticTally tally = run_elastic(weather, 100);
  CHECK(tally.most_restarts == weather.max_restarts);
  CHECK(tally.endings.at("failed") > 0);
}

TEST_CASE("hung workers of an elastic job cost a restart as failures do, and it ends") {
  ElasticWeather weather;
  weather.hosts = 5;
  weather.max_nodes = 4;
  weather.hang_chance = 20;
  weather.max_restarts = 2;
  weather.mute_chance = GENERATE(0, 20);
  weather.question_chance = 50;
  const ElasticTally tally = run_elastic(weather, 500);
  CHECK(tally.most_restarts == 2);
  CHECK(tally.hangs_shown > 0);
  CHECK(tally.censuses_told > 0);
  CHECK(tally.endings.at("succeeded") > 0);
  CHECK(tally.endings.at("failed") > 0);
  CHECK(tally.endings.size() == 2);
}

TEST_CASE("a node whose workers always fail is left out, and the job succeeds with the others") {
  ElasticWeather weather;
  weather.hosts = 4;
  weather.max_restarts = 20;
  weather.bad_hosts = 1;
  weather.exclude_after = 2;
  std::size_t left_out = 0;
  for (std::uint32_t seed = 1; seed <= 100 / kRunShare; ++seed) {
    ElasticCluster cluster(weather, seed);
    cluster.run();
    if (cluster.broken().empty()) cluster.check_end();
    CAPTURE(seed);
    REQUIRE(cluster.broken() == "");
    left_out += cluster.left_out();
    CHECK(cluster.outcome()->ending == Ending(Succeeded{}));
  }
  CHECK(left_out > 30 / kRunShare);
}

TEST_CASE("whatever happens to an elastic job, its worlds are sound and it ends") {
  const std::uint32_t first = number_of("DRUN_SIM_SEED", 1);
  const std::uint32_t runs = number_of("DRUN_SIM_RUNS", 400 / kRunShare);
  ElasticTally tally;
  for (std::uint32_t seed = first; seed < first + runs; ++seed)
    run_one(random_weather(seed), seed, tally);
  CHECK(tally.runs == static_cast<int>(runs));
  std::string figures = std::to_string(tally.runs) + " runs, at most " +
                        std::to_string(tally.most_rounds) + " rounds";
  figures += ", " + std::to_string(tally.hangs_shown) + " words of a hang, " +
             std::to_string(tally.censuses_told) + " censuses";
  for (const auto& [name, count] : tally.endings)
    figures += ", " + std::to_string(count) + " " + name;
  if (std::getenv("DRUN_SIM_RUNS") != nullptr) WARN(figures);
  // Otherwise the weather is too fair to prove anything.
  if (runs >= 400) CHECK(tally.endings.size() == 5);
}

}  // namespace drun::test
