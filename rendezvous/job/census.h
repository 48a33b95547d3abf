// core. A census: how a job and each of its nodes are doing, as the coordinator has it from a short
// word of each (`drun status`).
//
// Units:   durations are before the message, by the sender's steady clock.
// Limits:  what all nodes take together (kMostCensusBytes); those beyond it are counted.
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/job/outcome.h"
#include "rendezvous/job/phase_times.h"

namespace drun {

// Of one node. Waiting: nothing runs there any more, the other nodes or the next round are waited
// for.
enum class NodePhase { Joining, Running, Stopping, Waiting };

// A node's own report.
struct NodeSummary {
  NodePhase phase = NodePhase::Joining;
  int workers_running = 0;
  int workers_failed = 0;  // in the latest round
  std::chrono::milliseconds up{0};
  bool operator==(const NodeSummary&) const = default;
};

// Asked: it was, and has not answered. Coming: it came during the census.
enum class NodePresence { Answered, Asked, Coming, Lost };

struct CensusNode {
  std::optional<int> node_rank{};  // absent: no number yet, or a spare
  std::string host;
  int workers = 0;  // that it runs in a world
  NodePresence presence = NodePresence::Answered;
  NodeSummary told{};                  // if it has answered
  std::chrono::milliseconds heard{0};  // since its last sign of life
  bool operator==(const CensusNode&) const = default;
};

enum class JobPhase { Joining, Running, Stopping, Pausing, Finishing };

// The part that the coordinator knows without asking.
struct JobFacts {
  std::string endpoint;
  JobPhase phase = JobPhase::Joining;
  int least_nodes = 1;  // as asked for
  int most_nodes = 1;
  int joined_nodes = 0;  // in the world, or in line for it
  int spares = 0;        // in line while a world runs
  std::optional<int> round{};
  bool is_preflight = false;  // the world is one of probes
  int world_size = 0;
  int restarts = 0;
  int restarts_left = 0;
  int max_restarts = 0;
  std::chrono::milliseconds up{0};  // since the first world; before it, since nodes are waited for
  std::chrono::milliseconds round_up{0};
  std::optional<Failure> last_failure{};  // brief; that of the last round that failed
  std::vector<LeftOut> left_out{};        // the first 16
  JobTimes times{};                       // of the nodes of the world
  bool operator==(const JobFacts&) const = default;
};

struct Census {
  std::string note{};  // why there is no more than this; empty: all is there
  JobFacts job{};
  std::vector<CensusNode> nodes{};  // by node rank, then those without one
  int nodes_not_listed = 0;
  std::vector<int> missing_ranks{};  // that fixed worlds wait for: the first 64
  bool operator==(const Census&) const = default;
};

constexpr std::chrono::seconds kCensusLimit{2};  // later answers do not count
constexpr std::size_t kMostCensusBytes = std::size_t{256} << 10;

}  // namespace drun
