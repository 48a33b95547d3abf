// core. Information about earlier rounds: the nodes that the job excludes, and what a new
// coordinator learns from the members (Past) and from the former coordinator (RoundRecord).
//
// Units:   ages end when the message is sent, by the sender's steady clock.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/job/outcome.h"

namespace drun::rendezvous {

// --- The nodes that an elastic job excludes because their workers fail repeatedly
// (--exclude-after). Part of the coordinator's state (round.h).
//
// Rule:    a node is at fault if the root cause of a failed round is one of its workers. Rounds
//          that end for other reasons (a node joins, leaves or is lost) do not change the count of
//          consecutive failures.
// Limits:  1024 excluded nodes; beyond that, the oldest entry is dropped.

using AgentId = std::pair<std::string, int>;  // host and address, slot

struct Exclusions {
  struct Entry {
    AgentId id;
    LeftOut told;
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> nodes{};  // in order of time
  std::optional<AgentId> last_at_fault{};
  int failures_in_a_row = 0;
  bool operator==(const Exclusions&) const = default;
};

// Records that the root cause of a failed round was on `id`. Returns the number of consecutive
// failures of `id`.
int count_failure(Exclusions& exclusions, const AgentId& id);

// Excludes `id` and resets the count.
void leave_out(Exclusions& exclusions, const AgentId& id, LeftOut told);

// Records a node that an earlier coordinator excluded, as reported by a member. Does not reset the
// count. Returns false if it was already known.
bool inherit_left_out(Exclusions& exclusions, const AgentId& id, LeftOut told);

// "its workers were the first to fail in 3 rounds in a row (--exclude-after=2)"
std::string left_out_reason(int failures, int most);

bool is_left_out(const Exclusions& exclusions, const AgentId& id);

// Why `id` cannot join; nothing if it can.
std::optional<Error> exclusion_objection(const Exclusions& exclusions, const AgentId& id);

// The excluded nodes, for the outcome.
std::vector<LeftOut> all_left_out(const Exclusions& exclusions);

// --- For a new coordinator

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
  bool is_checked = false;               // it was in a world of the program: no preflight is due
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
