// Agents of one elastic job on this machine. The workers of each round print where they are, then
// wait until the test says what they do.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/job.h"

namespace drun::testing {

class HeldJob {
 public:
  // Options of all agents.
  explicit HeldJob(const Words& options);

  // The workers print "ready ROUND RANK/WORLD_SIZE RESTARTS" in every round.
  Running& start(const Words& more_options = {});
  void start(int count);
  // Makes all workers of the round run the script.
  void go(int round, const std::string& script) const;

  // The agent's process in a round. The process that was started is its guardian.
  pid_t agent(int round, int node_rank) const;
  // In the order of their start.
  Running& operator[](std::size_t i) { return *agents_.at(i); }
  std::vector<Running*> all() const;
  // Returns the first agent that prints the text. The other agents' output is not consumed.
  Running& that_prints(const std::string& text);

 private:
  TemporaryDirectory directory_;
  Launch launch_;
  std::vector<std::unique_ptr<Running>> agents_;
};

}  // namespace drun::testing
