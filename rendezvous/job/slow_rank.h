// core. How fast a node's workers are, as the node reports it, and the slow ranks that the
// coordinator finds with these reports (rendezvous/ranks/slow_ranks.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace drun {

// The measure of a report. In synchronous training, all ranks make the same number of steps, and a
// slow rank shows in the time that it does not wait for others.
enum class SpeedMeasure {
  None,     // nothing is known about the workers
  OwnTime,  // milliseconds outside calls to worker_lib
  Nccl,     // 2: behind others in NCCL; 1: not behind
  Steps,    // steps in the progress file
};

// A node's report about one window of time. All nodes begin window 0 with the round.
struct NodeSpeed {
  int window = 0;
  std::chrono::milliseconds length{0};
  SpeedMeasure measure = SpeedMeasure::None;
  bool has_progress = false;   // OwnTime: most workers have begun an operation in the window
  std::vector<int> amounts{};  // by local rank; 0: not known
  // The share of the processor time that was wanted and not given.
  int stolen_permille = 0;     // by the hypervisor
  int throttled_permille = 0;  // by a limit of the cgroup
  bool is_hot = false;         // heat throttled a processor
  bool operator==(const NodeSpeed&) const = default;
};
inline constexpr std::size_t kMostSpeedRanks = 4096;  // of one node

// A rank or node that is slower than the others. Each is named once per job.
struct SlowRank {
  std::optional<int> rank{};  // absent: the whole node
  int node_rank = 0;
  std::string host{};
  int round = 0;
  int percent = 0;         // the additional time that it needs for the same work
  std::string evidence{};  // "the others wait for it 12 % of the time"
  bool is_slow = true;     // false: it no longer is, or a later round has not shown it yet
  bool operator==(const SlowRank&) const = default;
};
inline constexpr std::size_t kMostSlowRanks = 16;  // named in a job

// "rank 5 on node 1 (gpu1) is 14 % slower than the others: the others wait ..."
inline std::string text_of(const SlowRank& slow) {
  const std::string node = "node " + std::to_string(slow.node_rank) + " (" + slow.host + ")";
  return (slow.rank ? "rank " + std::to_string(*slow.rank) + " on " + node : node) + " is " +
         std::to_string(slow.percent) + " % slower than the others: " + slow.evidence;
}

}  // namespace drun
