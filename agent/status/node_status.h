// core. An agent's answers to `drun status`.
#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/output/console_lines.h"
#include "agent/spec.h"
#include "agent/status/phases.h"
#include "rendezvous/job/census.h"
#include "rendezvous/job/outcome.h"
#include "rendezvous/job/world.h"

namespace drun::agent {

// The phase of one node. Waiting: no worker runs there; it waits for other nodes or the next round.
enum class NodePhase { Joining, Running, Stopping, Waiting };

const char* word_of(NodePhase phase);  // "joining"

struct NodeStatus {
  std::string run_id;
  std::string host;
  int pid = 0;         // the agent's
  int parent_pid = 0;  // the guardian, which the user started
  std::vector<std::string> command;
  std::size_t arguments_at = 1;         // index in `command` of the program's own arguments
  std::vector<ProgramSpec> programs{};  // several: all programs; `command` is the first one's
  int node_count = 1;                   // requested; the world's once there is one
  NodePhase phase = NodePhase::Joining;
  std::optional<World> world;             // of the latest round
  std::chrono::milliseconds up{0};        // the agent
  std::chrono::milliseconds round_up{0};  // the latest round
  NodeTimes times{};                      // the phases sum to `up`
  std::vector<int> pids;                  // by local rank; 0: has ended
  int workers_failed = 0;                 // of the latest round
  std::optional<Failure> last_failure;    // of a worker of this node
  std::string log_directory;              // empty: no files
  std::vector<WorkerLogs> logs{};         // by local rank; empty before the round's files are open
  std::optional<JobFacts> job{};          // on the coordinator's node
};

// One JSON object, schema "drun.status/1" (docs/guide/running-jobs.md), newline at the end. Bytes
// that are not UTF-8 become U+FFFD. Never throws.
std::string status_json(const NodeStatus& status);

// The same for readers other than this user: commands without the program's arguments, which may
// contain tokens.
NodeStatus without_arguments(NodeStatus status);

// --- The answer about the whole job: from the coordinator's census
//
// Without a census, the answer has only this node and a note with the reason.

// A node's own part of its entry in a census (CensusNode::answer).
struct NodeSummary {
  NodePhase phase = NodePhase::Joining;
  int workers_running = 0;
  int workers_failed = 0;  // in the latest round
  std::chrono::milliseconds up{0};
  bool operator==(const NodeSummary&) const = default;
};
NodeSummary summary_of(const NodeStatus& status);
// Absent: malformed.
std::string encode_summary(NodeSummary summary);
std::optional<NodeSummary> decode_summary(std::string_view bytes);

// {"rank", "node_rank", "host", ...} of each; also in the report.
nlohmann::ordered_json slow_json(const std::vector<SlowRank>& slow);

// One JSON object, schema "drun.job/1" (docs/guide/running-jobs.md), newline at the end. Bytes that
// are not UTF-8 become U+FFFD. Never throws.
std::string job_json(const NodeStatus& own, const Census& census);

}  // namespace drun::agent
