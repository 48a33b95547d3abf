#include "agent/supervise/round_log.h"

#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

namespace drun::agent {

TEST_CASE("an agent does not repeat the restart that the coordinator has announced") {
  std::vector<std::pair<LogLevel, std::string>> lines;
  const Log log([&](LogLevel level, std::string_view text) { lines.emplace_back(level, text); });
  AgentSpec spec;
  World world;
  world.restarts = 1;
  world.max_restarts = 3;
  const World before = world;
  world.restarts = 2;
  log_world(log, spec, before, world);
  const std::string text = "restarting all workers, restart 2 of 3";
  CHECK(lines == std::vector{std::pair(LogLevel::Debug, text)});
}

}  // namespace drun::agent
