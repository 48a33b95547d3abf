// core. Information about earlier rounds for a new coordinator: from the members (Past) and from
// the former coordinator (RoundRecord).
//
// Units:   ages end when the message is sent, by the sender's steady clock.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/job/exclusion.h"
#include "rendezvous/job/outcome.h"

namespace drun::rendezvous {

// The most restart ages in a Hello, whose size is limited. Older restarts count as if they were as
// old as the oldest one sent.
constexpr std::size_t kMostRestartsTold = 256;
constexpr std::size_t kMostRecords = 16;
constexpr std::size_t kRecordTextBytes = 128;

// An elected coordinator's record of one agent, for the next coordinator.
struct NodeRecord {
  std::string name{};  // host and address, as in AgentId; never truncated
  int slot = 0;
  int losses = 0;  // consecutive losses
  bool is_left_out = false;
  int node_rank = 0;  // this and the next two fields: only of an excluded agent
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
  int rounds = 0;                    // number of rounds that have begun
  int node_count = 0;                // of the last world
  std::chrono::milliseconds age{0};  // of its first world
  std::string coordinator;           // of the last world: its host
  int restarts = 0;
  std::vector<std::chrono::milliseconds> restart_ages{};  // of the last ones, oldest first
  std::vector<NodeRecord> records{};
  std::optional<AgedFailure> failure{};  // this node's first in the last world; see short_failure
  bool operator==(const Past&) const = default;
};

// Brief, without paths, and with a status of at most kRecordTextBytes, to fit into a Hello.
Failure short_failure(Failure failure);

// Adds or replaces the record of one agent. Beyond kMostRecords, drops records of agents that were
// only lost first, then the oldest.
void note_record(std::vector<NodeRecord>& records, NodeRecord record);

// A coordinator's record of the rounds so far, for its successor. An election by votes keeps only
// `rounds`, and members report the rest (Past); etcd keeps all fields.
struct RoundRecord {
  int rounds = 0;    // number of rounds that have begun or are about to
  int restarts = 0;  // used up
  Exclusions exclusions{};
  bool operator==(const RoundRecord&) const = default;
};

}  // namespace drun::rendezvous
