// Simulated elastic jobs. See seeds.h for the choice of seeds.
#include <map>

#include "tests/sim/elastic_cluster.h"
#include "tests/sim/seeds.h"
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

void run_to_end(ElasticCluster& cluster) {
  cluster.run();
  if (cluster.broken().empty()) cluster.check_end();
}

void run_one(const ElasticWeather& weather, std::uint32_t seed, ElasticTally& tally) {
  const auto ran = run_seed<ElasticCluster>(weather, seed, run_to_end);
  const ElasticCluster& cluster = *ran;
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
  for (const std::uint32_t seed : seeds(runs / kRunShare)) run_one(weather, seed, tally);
  return tally;
}

}  // namespace

TEST_CASE("without faults an elastic job succeeds in one round, with and without spares") {
  ElasticWeather weather;
  weather.hosts = GENERATE(2, 3, 6);
  const ElasticTally tally = run_elastic(weather, 50);
  if (seeds_are_chosen()) return;
  CHECK(tally.endings == std::map<std::string, int>{{"succeeded", tally.runs}});
  CHECK(tally.most_rounds == 1);
}

TEST_CASE("late nodes and lost nodes cause new rounds and use up no restart") {
  ElasticWeather weather;
  weather.hosts = 6;
  weather.max_nodes = 5;
  weather.late_hosts = 2;
  weather.kills = 2;
  weather.comeback_chance = 100;
  const ElasticTally tally = run_elastic(weather, 100);
  if (seeds_are_chosen()) return;
  CHECK(tally.endings.at("succeeded") > tally.runs / 2);
  CHECK(tally.most_restarts == 0);
  CHECK(tally.most_rounds > 2);
}

TEST_CASE("a second agent with the identity of a living one is refused and stops no round") {
  ElasticWeather weather;
  weather.hosts = 4;
  weather.max_nodes = 4;
  weather.twins = 20;
  const ElasticTally tally = run_elastic(weather, 100);
  CHECK(tally.endings == std::map<std::string, int>{{"succeeded", tally.runs}});
  CHECK(tally.most_rounds == 1);
}

TEST_CASE("a restarted agent is admitted at once although its old connection is silent") {
  ElasticWeather weather;
  weather.hosts = 4;
  weather.max_nodes = 4;
  weather.reboots = 3;
  const ElasticTally tally = run_elastic(weather, 100);
  CHECK(tally.endings == std::map<std::string, int>{{"succeeded", tally.runs}});
  CHECK(tally.most_rounds > 1);
}

TEST_CASE("an elastic job restarts up to max_restarts times and reports the first failure") {
  ElasticWeather weather;
  weather.hosts = 5;
  weather.max_nodes = 4;
  weather.failure_chance = 30;
  weather.slow_chance = 50;
  weather.max_restarts = GENERATE(0, 2);
  const ElasticTally tally = run_elastic(weather, 100);
  if (seeds_are_chosen()) return;
  CHECK(tally.most_restarts == weather.max_restarts);
  CHECK(tally.endings.at("failed") > 0);
}

TEST_CASE("hung workers of an elastic job use up restarts as failures do") {
  ElasticWeather weather;
  weather.hosts = 5;
  weather.max_nodes = 4;
  weather.hang_chance = 20;
  weather.max_restarts = 2;
  weather.mute_chance = GENERATE(0, 20);
  weather.question_chance = 50;
  const ElasticTally tally = run_elastic(weather, 500);
  if (seeds_are_chosen()) return;
  CHECK(tally.most_restarts == 2);
  CHECK(tally.hangs_shown > 0);
  CHECK(tally.censuses_told > 0);
  CHECK(tally.endings.at("succeeded") > 0);
  CHECK(tally.endings.at("failed") > 0);
  CHECK(tally.endings.size() == 2);
}

TEST_CASE("a node whose workers always fail is excluded, and the job succeeds on the other nodes") {
  ElasticWeather weather;
  weather.hosts = 4;
  weather.max_restarts = 20;
  weather.bad_hosts = 1;
  weather.exclude_after = 2;
  std::size_t left_out = 0;
  for (const std::uint32_t seed : seeds(100 / kRunShare)) {
    INFO(replay(seed));
    const auto ran = run_seed<ElasticCluster>(weather, seed, run_to_end);
    const ElasticCluster& cluster = *ran;
    left_out += cluster.left_out();
    CHECK(cluster.outcome()->ending == Ending(Succeeded{}));
  }
  if (seeds_are_chosen()) return;
  CHECK(left_out > 30 / kRunShare);
}

TEST_CASE("whatever happens to an elastic job, its worlds are consistent and it ends") {
  ElasticTally tally;
  for (const std::uint32_t seed : seeds(400 / kRunShare))
    run_one(random_weather(seed), seed, tally);
  std::string figures = std::to_string(tally.runs) + " runs, at most " +
                        std::to_string(tally.most_rounds) + " rounds";
  figures += ", " + std::to_string(tally.hangs_shown) + " words of a hang, " +
             std::to_string(tally.censuses_told) + " censuses";
  for (const auto& [name, count] : tally.endings)
    figures += ", " + std::to_string(count) + " " + name;
  if (seeds_are_chosen()) WARN(figures);
  // If an ending does not occur, the random faults are too mild to prove anything.
  if (tally.runs >= 400) CHECK(tally.endings.size() == 5);
}

}  // namespace drun::test
