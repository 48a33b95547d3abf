// core. A member's record of its rounds, from which a coordinator that takes over learns of them.
//
// Units:   ages are before the message, by the sender's steady clock.
// Owner:   a value; copy freely.   Thread: any.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/job/exclusion.h"
#include "rendezvous/job/outcome.h"

namespace drun::rendezvous {

// A Hello has a limit: older restarts than these count as old as the oldest told.
constexpr std::size_t kMostRestartsTold = 256;
constexpr std::size_t kMostRecords = 16;
constexpr std::size_t kRecordTextBytes = 128;

// What an elected coordinator keeps of one agent, and would have the next one know.
struct NodeRecord {
  std::string name{};  // host and address, as the coordinator knows an agent; not one cut short
  int slot = 0;
  int losses = 0;  // how often in a row it was lost
  bool is_left_out = false;
  int node_rank = 0;  // the next are of one that is left out
  int round = 0;
  std::string reason{};
  bool operator==(const NodeRecord&) const = default;
};

// `age`: how long before sending the agent saw it happen, by the agent's steady clock. Failures of
// several nodes are ordered by it alone: Failure::time is for display.
struct AgedFailure {
  Failure failure;
  std::chrono::microseconds age{0};
  bool operator==(const AgedFailure&) const = default;
};

struct Past {
  int rounds = 0;                    // begun
  int node_count = 0;                // of the last world
  std::chrono::milliseconds age{0};  // of its first world
  std::string coordinator;           // of the last world: its host
  int restarts = 0;
  std::vector<std::chrono::milliseconds> restart_ages{};  // of the last ones, oldest first
  std::vector<NodeRecord> records{};
  std::optional<AgedFailure> failure{};  // this node's first in the last world; see short_failure
  bool operator==(const Past&) const = default;
};

// Brief, without paths, and with a status of at most kRecordTextBytes: a Hello has little room.
Failure short_failure(Failure failure);

// Each agent once, by the latest word; beyond kMostRecords those go first that were only lost, then
// the oldest.
void note_record(std::vector<NodeRecord>& records, NodeRecord record);

// core. What a coordinator leaves to its successor about the rounds so far. With an election by
// votes only their number is kept, and members report the rest (job_record.h). etcd keeps
// everything. Owner:   values; copy freely.   Thread: any.

struct RoundRecord {
  int rounds = 0;    // that have begun, or are about to
  int restarts = 0;  // used up
  Exclusions exclusions{};
  bool operator==(const RoundRecord&) const = default;
};

}  // namespace drun::rendezvous
