// Simulated jobs with one coordinator. See seeds.h for the choice of seeds.
#include <map>

#include "tests/sim/cluster.h"
#include "tests/sim/seeds.h"
#include "tests/support/catch.h"

namespace drun::test {
namespace {

using Endings = std::map<std::string, int>;

struct Tally {
  int runs = 0;
  int most_rounds = 0;
  int most_restarts = 0;
  int hangs_shown = 0;
  int censuses_told = 0;
  int stacks_told = 0;
  std::size_t left_out = 0;
  Endings endings;
};

void run_one(const Weather& weather, std::uint32_t seed, Tally& tally) {
  const auto ran = run_seed<Cluster>(weather, seed, [](Cluster& cluster) {
    cluster.run();
    if (cluster.broken().empty()) cluster.check_end();
  });
  const Cluster& cluster = *ran;
  ++tally.runs;
  tally.most_rounds = std::max(tally.most_rounds, cluster.rounds());
  tally.most_restarts = std::max(tally.most_restarts, cluster.restarts());
  tally.hangs_shown += cluster.hangs_shown();
  tally.censuses_told += cluster.censuses_told();
  tally.stacks_told += cluster.stacks_told();
  tally.left_out += cluster.left_out();
  const char* const names[] = {"succeeded", "failed", "interrupted", "lost", "not run"};
  if (const auto outcome = cluster.outcome()) ++tally.endings[names[outcome->ending.index()]];
}

Tally run_many(const Weather& weather, int runs) {
  Tally tally;
  for (const std::uint32_t seed : seeds(runs / kRunShare)) run_one(weather, seed, tally);
  return tally;
}

}  // namespace

TEST_CASE("without faults every job succeeds, in any start order") {
  const Tally tally = run_many(fixed_weather(GENERATE(1, 2, 3, 8)), 300);
  if (seeds_are_chosen()) return;
  CHECK(tally.endings == Endings{{"succeeded", tally.runs}});
}

TEST_CASE("failures restart the job on all nodes, up to max_restarts times") {
  Weather weather = fixed_weather(4);
  weather.failure_chance = 30;
  weather.max_restarts = GENERATE(0, 1, 3);
  const Tally tally = run_many(weather, 500);
  if (seeds_are_chosen()) return;
  CHECK(tally.most_restarts == weather.max_restarts);
  CHECK(tally.endings.at("succeeded") > 0);
  CHECK(tally.endings.at("failed") > 0);
  CHECK(tally.endings.size() == 2);
}

TEST_CASE("a signal to one agent ends the job cleanly at any time") {
  Weather weather = fixed_weather(3);
  weather.failure_chance = 20;
  weather.max_restarts = 2;
  weather.leaves = GENERATE(0, 4);  // most of them after the end
  weather.signal_master_chance = weather.leaves == 0 ? 100 : 0;
  const Tally tally = run_many(weather, 1000);
  if (seeds_are_chosen()) return;
  CHECK(tally.endings.at("interrupted") > tally.runs / 5);
}

TEST_CASE("all other nodes report the same lost node when a node is killed") {
  Weather weather = fixed_weather(5);
  weather.failure_chance = 10;
  weather.max_restarts = 2;
  weather.kills = 3;  // most of them after the end
  const Tally tally = run_many(weather, 1000);
  if (seeds_are_chosen()) return;
  CHECK(tally.endings.at("lost") > tally.runs / 5);
}

TEST_CASE("all other nodes stop and exit when the coordinator is killed") {
  Weather weather = fixed_weather(4);
  weather.kill_master_chance = 100;
  const Tally tally = run_many(weather, 1000);
  if (seeds_are_chosen()) return;
  CHECK(tally.endings.at("lost") > tally.runs / 5);
}

TEST_CASE("a node that never starts makes all nodes time out") {
  Weather weather = fixed_weather(3);
  weather.absent_host = GENERATE(0, 2);
  const Tally tally = run_many(weather, 300);
  if (seeds_are_chosen()) return;
  CHECK(tally.endings == Endings{{"not run", tally.runs}});
}

TEST_CASE("links that break or fall silent never cause different outcomes") {
  Weather weather = fixed_weather(GENERATE(2, 4));
  weather.failure_chance = 20;
  weather.max_restarts = 2;
  weather.cuts = 2;
  weather.drops = 2;
  run_many(weather, 1000);
}

TEST_CASE("hung workers are detected and use up restarts as failures do") {
  Weather weather = fixed_weather(GENERATE(1, 4));
  weather.hang_chance = 50;
  weather.max_restarts = 2;
  weather.mute_chance = GENERATE(0, 20);
  const Tally tally = run_many(weather, 500);
  if (seeds_are_chosen()) return;
  CHECK(tally.most_restarts == 2);
  CHECK(tally.hangs_shown > 0);
  CHECK(tally.endings.at("succeeded") > 0);
  CHECK(tally.endings.at("failed") > 0);
  CHECK(tally.endings.size() == 2);
}

TEST_CASE("without faults every query is answered and has no other effect") {
  Weather weather = fixed_weather(GENERATE(1, 4));
  weather.question_chance = 100;
  weather.mute_chance = GENERATE(0, 30);
  const Tally tally = run_many(weather, 1000);
  if (seeds_are_chosen()) return;
  CHECK(tally.stacks_told > 0);
  CHECK(tally.censuses_told > 0);
  CHECK(tally.endings == Endings{{"succeeded", tally.runs}});
}

TEST_CASE("all of it at once") {
  Tally tally;
  for (const std::uint32_t seed : seeds(6000 / kRunShare))
    run_one(random_fixed_weather(seed), seed, tally);
  if (tally.runs >= 6000) CHECK(tally.endings.size() == 5);
}

// --- elastic jobs

TEST_CASE("without faults an elastic job succeeds in one round, with and without spares") {
  Weather weather;
  weather.hosts = GENERATE(2, 3, 6);
  const Tally tally = run_many(weather, 50);
  if (seeds_are_chosen()) return;
  CHECK(tally.endings == Endings{{"succeeded", tally.runs}});
  CHECK(tally.most_rounds == 1);
}

TEST_CASE("late nodes and lost nodes cause new rounds and use up no restart") {
  Weather weather;
  weather.hosts = 6;
  weather.max_nodes = 5;
  weather.late_hosts = 2;
  weather.kills = 2;
  weather.comeback_chance = 100;
  const Tally tally = run_many(weather, 100);
  if (seeds_are_chosen()) return;
  CHECK(tally.endings.at("succeeded") > tally.runs / 2);
  CHECK(tally.most_restarts == 0);
  CHECK(tally.most_rounds > 2);
}

TEST_CASE("a second agent with the identity of a living one is refused and stops no round") {
  Weather weather;
  weather.hosts = 4;
  weather.max_nodes = 4;
  weather.twins = 20;
  const Tally tally = run_many(weather, 100);
  CHECK(tally.endings == Endings{{"succeeded", tally.runs}});
  CHECK(tally.most_rounds == 1);
}

TEST_CASE("a restarted agent is admitted at once although its old connection is silent") {
  Weather weather;
  weather.hosts = 4;
  weather.max_nodes = 4;
  weather.reboots = 3;
  const Tally tally = run_many(weather, 100);
  CHECK(tally.endings == Endings{{"succeeded", tally.runs}});
  CHECK(tally.most_rounds > 1);
}

TEST_CASE("an elastic job restarts up to max_restarts times and reports the first failure") {
  Weather weather;
  weather.hosts = 5;
  weather.max_nodes = 4;
  weather.failure_chance = 30;
  weather.slow_chance = 50;
  weather.max_restarts = GENERATE(0, 2);
  const Tally tally = run_many(weather, 100);
  if (seeds_are_chosen()) return;
  CHECK(tally.most_restarts == weather.max_restarts);
  CHECK(tally.endings.at("failed") > 0);
}

TEST_CASE("hung workers of an elastic job use up restarts as failures do") {
  Weather weather;
  weather.hosts = 5;
  weather.max_nodes = 4;
  weather.hang_chance = 20;
  weather.max_restarts = 2;
  weather.mute_chance = GENERATE(0, 20);
  weather.question_chance = 50;
  const Tally tally = run_many(weather, 500);
  if (seeds_are_chosen()) return;
  CHECK(tally.most_restarts == 2);
  CHECK(tally.hangs_shown > 0);
  CHECK(tally.censuses_told > 0);
  CHECK(tally.endings.at("succeeded") > 0);
  CHECK(tally.endings.at("failed") > 0);
  CHECK(tally.endings.size() == 2);
}

TEST_CASE("a node whose workers always fail is excluded, and the job succeeds on the other nodes") {
  Weather weather;
  weather.hosts = 4;
  weather.max_restarts = 20;
  weather.bad_hosts = 1;
  weather.exclude_after = 2;
  const Tally tally = run_many(weather, 100);
  CHECK(tally.endings == Endings{{"succeeded", tally.runs}});
  if (seeds_are_chosen()) return;
  CHECK(tally.left_out > 30 / kRunShare);
}

TEST_CASE("whatever happens to an elastic job, its worlds are consistent and it ends") {
  Tally tally;
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
