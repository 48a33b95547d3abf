#include <map>

#include "tests/sim/cluster.h"
#include "tests/sim/seeds.h"
#include "tests/support/catch.h"

namespace drun::test {
namespace {

struct Tally {
  int runs = 0;
  std::map<std::string, int> endings;
  int most_restarts = 0;
  int hangs_shown = 0;
  int questions_answered = 0;
  int censuses_told = 0;
};

std::string name_of(const Ending& ending) {
  const char* const names[] = {"succeeded", "failed", "interrupted", "lost", "not run"};
  return names[ending.index()];
}

Tally run_many(const Weather& weather, int most_runs) {
  Tally tally;
  for (const std::uint32_t seed : seeds(most_runs / kRunShare)) {
    const auto ran = run_seed<Cluster>(weather, seed, [](Cluster& cluster) {
      cluster.run();
      if (cluster.broken().empty()) cluster.check_end();
    });
    const Cluster& cluster = *ran;
    ++tally.runs;
    tally.hangs_shown += cluster.hangs_shown();
    tally.questions_answered += cluster.questions_answered();
    tally.censuses_told += cluster.censuses_told();
    tally.most_restarts = std::max(tally.most_restarts, cluster.restarts());
    for (const Outcome& outcome : cluster.outcomes()) ++tally.endings[name_of(outcome.ending)];
  }
  return tally;
}

}  // namespace

TEST_CASE("without faults every job succeeds, in any start order") {
  Weather weather;
  weather.node_count = GENERATE(1, 2, 3, 8);
  const Tally tally = run_many(weather, 300);
  if (seeds_are_chosen()) return;
  CHECK(tally.endings ==
        std::map<std::string, int>{{"succeeded", tally.runs * weather.node_count}});
}

TEST_CASE("failures restart the job on all nodes, up to max_restarts times") {
  Weather weather;
  weather.node_count = 4;
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
  Weather weather;
  weather.failure_chance = 20;
  weather.max_restarts = 2;
  weather.interrupt_chance = 100;
  const Tally tally = run_many(weather, 1000);
  if (seeds_are_chosen()) return;
  CHECK(tally.endings.at("interrupted") > tally.runs / 2);
}

TEST_CASE("all other nodes report the same lost node when a node is killed") {
  Weather weather;
  weather.node_count = 5;
  weather.failure_chance = 10;
  weather.max_restarts = 2;
  weather.kill_chance = 100;
  const Tally tally = run_many(weather, 1000);
  if (seeds_are_chosen()) return;
  CHECK(tally.endings.at("lost") > tally.runs / 2);
}

TEST_CASE("all other nodes stop and exit when the coordinator is killed") {
  Weather weather;
  weather.node_count = 4;
  weather.kill_master_chance = 100;
  const Tally tally = run_many(weather, 1000);
  if (seeds_are_chosen()) return;
  CHECK(tally.endings.at("lost") > tally.runs / 2);
}

TEST_CASE("a node that never starts makes all nodes time out") {
  Weather weather;
  weather.absent_chance = 100;
  const Tally tally = run_many(weather, 300);
  if (seeds_are_chosen()) return;
  CHECK(tally.endings == std::map<std::string, int>{{"not run", 2 * tally.runs}});
}

TEST_CASE("links that break or fall silent never cause different outcomes") {
  Weather weather;
  weather.node_count = GENERATE(2, 4);
  weather.failure_chance = 20;
  weather.max_restarts = 2;
  weather.cut_chance = 50;
  weather.drop_chance = 50;
  run_many(weather, 1000);
}

TEST_CASE("hung workers are detected and use up restarts as failures do") {
  Weather weather;
  weather.node_count = GENERATE(1, 4);
  weather.hang_chance = 30;
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
  Weather weather;
  weather.node_count = GENERATE(1, 4);
  weather.question_chance = 150;
  weather.mute_chance = GENERATE(0, 30);
  const Tally tally = run_many(weather, 1000);
  if (seeds_are_chosen()) return;
  CHECK(tally.questions_answered > 0);
  CHECK(tally.censuses_told > 0);
  CHECK(tally.endings ==
        std::map<std::string, int>{{"succeeded", tally.runs * weather.node_count}});
}

TEST_CASE("all of it at once") {
  Weather weather;
  weather.node_count = GENERATE(1, 3, 6);
  weather.failure_chance = 20;
  weather.max_restarts = 2;
  weather.interrupt_chance = 30;
  weather.kill_chance = 30;
  weather.kill_master_chance = 20;
  weather.cut_chance = 30;
  weather.drop_chance = 30;
  weather.absent_chance = 5;
  weather.hang_chance = 10;
  weather.mute_chance = 10;
  weather.question_chance = 20;
  run_many(weather, 2000);
}

}  // namespace drun::test
