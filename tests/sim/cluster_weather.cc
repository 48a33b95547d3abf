// Random faults.
#include <random>

#include "tests/sim/cluster.h"

namespace drun::test {

Weather random_weather(std::uint32_t seed) {
  std::mt19937 random(seed ^ 0x5eedU);
  const auto up_to = [&random](int most) {
    return static_cast<int>(random() % static_cast<unsigned>(most + 1));
  };
  Weather weather;
  weather.hosts = up_to(99) < 4 ? 3 + up_to(47) : 3 + up_to(4);
  weather.max_nodes = 1 + up_to(weather.hosts);
  weather.min_nodes = 1 + up_to(weather.max_nodes - 1);
  weather.late_hosts = up_to(weather.hosts / 2);
  weather.max_restarts = up_to(3);
  weather.failure_chance = up_to(1) * up_to(30);
  weather.kills = up_to(3);
  weather.comeback_chance = up_to(100);
  weather.leaves = up_to(2);
  weather.drops = up_to(2);
  weather.cuts = up_to(2);
  weather.freezes = up_to(2);
  weather.kill_master_chance = up_to(9) == 0 ? 100 : 0;
  weather.signal_master_chance = up_to(9) == 0 ? 100 : 0;
  weather.pause_ms = up_to(1) * up_to(2000);
  weather.exclude_after = up_to(3) == 0 ? 1 + up_to(1) : 0;
  weather.preflight = up_to(3) == 0;
  weather.bad_hosts = up_to(2) == 0 ? 1 : 0;
  weather.hang_chance = up_to(2) == 0 ? up_to(25) : 0;
  weather.mute_chance = up_to(1) * up_to(20);
  weather.question_chance = up_to(1) * up_to(40);
  return weather;
}

Weather fixed_weather(int nodes) {
  Weather weather;
  weather.hosts = weather.min_nodes = weather.max_nodes = nodes;
  weather.is_fixed = true;
  return weather;
}

Weather random_fixed_weather(std::uint32_t seed) {
  std::mt19937 random(seed ^ 0xf17edU);
  const auto in_percent = [&random](unsigned chance) { return random() % 100 < chance ? 1 : 0; };
  Weather weather = fixed_weather(1 + static_cast<int>(random() % 6));
  weather.failure_chance = 20;
  weather.max_restarts = 2;
  weather.leaves = in_percent(30);
  weather.signal_master_chance = 10;
  weather.kills = in_percent(30);
  weather.kill_master_chance = 20;
  weather.cuts = in_percent(30);
  weather.drops = in_percent(30);
  if (in_percent(5) == 1) weather.absent_host = static_cast<int>(random() % 6);
  weather.hang_chance = 10;
  weather.mute_chance = 10;
  weather.question_chance = 20;
  return weather;
}

}  // namespace drun::test
