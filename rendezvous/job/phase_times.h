// core. The phases of a job's time: the one list that events, reports and `drun status` share. Each
// moment of a node's time is in exactly one phase, so the phases of a node sum to its wall time.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace drun {

enum class Phase {
  Waiting,     // for other nodes: until the first round begins, and after this node's success
  Spawn,       // until every worker of the node is started
  Import,      // a preloaded interpreter imports its modules
  Start,       // until the first worker of the node prints something
  Running,     // until the first failure, a stop, or the end of the last worker
  Stopping,    // until no process of the round is left
  Restarting,  // until the next round begins
  Standby,     // while a round runs without this node
};
inline constexpr std::size_t kPhaseCount = 8;

// "waiting" and so on, as in events and JSON.
const char* word_of(Phase phase);
std::optional<Phase> phase_named(std::string_view word);
inline std::size_t index_of(Phase phase) { return static_cast<std::size_t>(phase); }

using PhaseTimes = std::array<std::chrono::milliseconds, kPhaseCount>;

// The time of one node until now.
struct NodeTimes {
  PhaseTimes phases{};             // with the current phase until now
  Phase current = Phase::Waiting;  // later time belongs to it
  // Of the latest round, the rank that took longest from its start to its first output. Absent: no
  // rank has printed anything.
  std::optional<int> slowest_start{};
  std::chrono::milliseconds slowest_start_time{0};
  bool operator==(const NodeTimes&) const = default;
};

// The longest time that one node, or one rank, spent in a phase.
struct LongestTime {
  std::chrono::milliseconds time{0};
  int node_rank = 0;
  std::optional<int> rank{};  // absent: all of the node's ranks
  bool operator==(const LongestTime&) const = default;
};

// The time of a job.
struct JobTimes {
  int nodes = 0;      // that reported; 0: nothing is known
  PhaseTimes mean{};  // over these nodes
  std::array<LongestTime, kPhaseCount> longest{};
  bool operator==(const JobTimes&) const = default;
};

// Adds up the nodes of a job.
class JobTimesSum {
 public:
  void add(int node_rank, const NodeTimes& times);
  JobTimes total() const;

 private:
  PhaseTimes sum_{};
  JobTimes job_{};
};

}  // namespace drun
