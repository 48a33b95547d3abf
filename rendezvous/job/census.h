// core. A census: the state of a job and of each of its nodes, which the coordinator makes from
// what it knows and from the nodes' answers to a query (`drun status`).
//
// Units:   durations end when the message is sent, by the sender's steady clock.
// Limits:  kMostCensusBytes for all nodes together; further nodes are only counted.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/job/outcome.h"
#include "rendezvous/job/phase_times.h"

namespace drun {

// Asked: it has not answered. Coming: it connected during the census.
enum class NodePresence { Answered, Asked, Coming, Lost };

struct CensusNode {
  std::optional<int> node_rank{};  // absent: no number yet, or a spare
  std::string host;
  int workers = 0;  // the number that it runs in a world
  NodePresence presence = NodePresence::Answered;
  std::string answer{};                // what it said itself (agent/status); empty: not answered
  std::chrono::milliseconds heard{0};  // since its last message
  bool operator==(const CensusNode&) const = default;
};

enum class JobPhase { Joining, Running, Stopping, Pausing, Finishing };

// The part that the coordinator knows without asking.
struct JobFacts {
  std::string endpoint;
  JobPhase phase = JobPhase::Joining;
  int min_nodes = 1;  // as requested
  int max_nodes = 1;
  int joined_nodes = 0;  // in the world, or in line for it
  int spares = 0;        // in line while a world runs
  std::optional<int> round{};
  bool is_preflight = false;  // the world is one of probes
  int world_size = 0;
  int restarts = 0;
  int restarts_left = 0;
  int max_restarts = 0;
  // Since the first world began; before that, since the coordinator started to wait for nodes.
  std::chrono::milliseconds up{0};
  std::chrono::milliseconds round_up{0};
  std::optional<Failure> last_failure{};  // brief; that of the last round that failed
  std::vector<LeftOut> left_out{};        // the first 16
  JobTimes times{};                       // of the nodes of the world
  std::vector<SlowRank> slow{};           // in order of time
  bool operator==(const JobFacts&) const = default;
};

struct Census {
  std::string note{};  // why the census is incomplete; empty: it is complete
  JobFacts job{};
  std::vector<CensusNode> nodes{};  // by node rank, then those without one
  int nodes_not_listed = 0;
  std::vector<int> missing_ranks{};  // fixed-size jobs: the first 64 ranks that have not joined
  bool operator==(const Census&) const = default;
};

constexpr std::size_t kMostStatusBytes = 64;  // of a node's answer
constexpr std::size_t kMostCensusBytes = std::size_t{256} << 10;
constexpr std::size_t kMostCensusNodes = 8192;
constexpr std::size_t kMostMissingTold = 64;
constexpr std::size_t kMostLeftOut = 16;  // of JobFacts and Outcome

}  // namespace drun
