// core. The outcome of a job: one value, the same on every node, from which report, JSON and exit
// code follow.
//
// Owner:   a value; copy freely.   Thread: any.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/failure.h"
#include "rendezvous/result.h"

namespace drun {

// Every worker of every node is known to have returned 0.
struct Succeeded {
  bool operator==(const Succeeded&) const = default;
};
// `failures.front()` is the root cause: the earliest by the coordinator's estimate, which is its
// steady clock less the failure's age. Workers that drun killed are not listed.
struct WorkersFailed {
  std::vector<Failure> failures;
  bool operator==(const WorkersFailed&) const = default;
};
// Somebody sent a termination signal to an agent.
struct Interrupted {
  int signal = 0;
  std::optional<int> node_rank{};  // absent: it had none yet, in an elastic world
  std::string host;
  bool operator==(const Interrupted&) const = default;
};
// An agent went away in the middle: its connection closed, or it missed its heartbeats.
// `is_coordinator`: it is the node that everyone had joined.
struct NodeLost {
  int node_rank = 0;
  std::string host;
  bool is_coordinator = false;
  std::string reason;
  bool operator==(const NodeLost&) const = default;
};
// The job never ran, or this node could not take part: usage, timeout, refusal, system.
struct NotRun {
  Error error;
  bool operator==(const NotRun&) const = default;
};
using Ending = std::variant<Succeeded, WorkersFailed, Interrupted, NodeLost, NotRun>;

// A node of an elastic world that the others go on without: --exclude-after.
struct LeftOut {
  int node_rank = 0;  // in its last world
  std::string host;
  int round = 0;  // that world's
  std::string reason;
  bool operator==(const LeftOut&) const = default;
};

struct Outcome {
  Ending ending = Succeeded{};
  std::string run_id{};
  int node_count = 0;
  int world_size = 0;
  int restarts = 0;  // rounds that were begun again
  int max_restarts = 0;
  std::size_t failures_left_out = 0;      // beyond what the wire carries
  std::chrono::milliseconds duration{0};  // from the first world to the end; 0: no world came to be
  std::vector<LeftOut> left_out{};        // nodes, in order of time
  bool operator==(const Outcome&) const = default;
};

}  // namespace drun
