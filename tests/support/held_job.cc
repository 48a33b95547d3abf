#include "tests/support/held_job.h"

#include <cstdio>

#include "tests/support/catch.h"
#include "tests/support/machine.h"

namespace drun::testing {

HeldJob::HeldJob(const Words& options)
    : launch_(shell_job(
          Words{"--min-uptime=0.2"} + options,
          "echo $PPID > $DIR/agent.$DRUN_ROUND.$GROUP_RANK; "
          "echo ready $DRUN_ROUND $RANK/$WORLD_SIZE $TORCHELASTIC_RESTART_COUNT; "
          "until [ -e $DIR/go.$DRUN_ROUND ]; do sleep 0.02; done; . $DIR/go.$DRUN_ROUND")) {
  launch_.environment["DIR"] = directory_.path();
}

Running& HeldJob::start(const Words& more_options) {
  Launch launch = launch_;
  launch.argv.insert(launch.argv.begin() + 1, more_options.begin(), more_options.end());
  return *agents_.emplace_back(std::make_unique<Running>(launch));
}

void HeldJob::start(int count) {
  for (int i = 0; i < count; ++i) start();
}

void HeldJob::go(int round, const std::string& script) const {
  const std::string part = directory_.file("part");
  write_file(part, script + "\n");
  REQUIRE(std::rename(part.c_str(), directory_.file("go." + std::to_string(round)).c_str()) == 0);
}

pid_t HeldJob::agent(int round, int node_rank) const {
  return std::stoi(read_file(
      directory_.file("agent." + std::to_string(round) + "." + std::to_string(node_rank))));
}

std::vector<Running*> HeldJob::all() const {
  std::vector<Running*> agents;
  for (const auto& agent : agents_) agents.push_back(agent.get());
  return agents;
}

Running& HeldJob::that_prints(const std::string& text) {
  using Clock = std::chrono::steady_clock;
  for (const auto deadline = Clock::now() + test::scaled(40s); Clock::now() < deadline;) {
    for (const auto& agent : agents_) {
      if (agent->prints(text, 20ms)) return *agent;
    }
  }
  std::string output;
  for (const auto& agent : agents_) output += "\n---\n" + agent->out() + agent->err();
  FAIL("no output has " << text << output);
  return *agents_.front();
}

}  // namespace drun::testing
