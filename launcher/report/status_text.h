// core. `drun status` as text, from the JSON of agents (agent/status/node_status.h), and the
// picture of `drun status --watch`. Control characters in names are made visible.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/result.h"

namespace drun {

// Identifies a job for `drun status`.
struct StatusNames {
  std::string run_id;
  int agent_pid = 0;
  int drun_pid = 0;
  std::string meeting_point{};  // with the run id, common to all agents of a job
  bool has_met() const { return meeting_point != "null null"; }  // false before the first world
};

// Whether `job` is the run id or its short form, or the pid of the agent on this machine or of
// drun.
bool is_called(const StatusNames& names, std::string_view job);

// Parses an agent's status. Errors: Refused, if this drun does not understand it.
Result<StatusNames> status_names(std::string_view json);

// Of one node: several lines, each ending with a newline. Empty if `json` is not its status.
std::string status_text(std::string_view json);

// Whether `json` has the schema that job_text reads.
bool is_job_status(std::string_view json);

// Of a whole job: several lines, each ending with a newline. Empty if `json` is not its status.
std::string job_text(std::string_view json);

// `nodes` of a node's status: requested, or in the round. 0 if it is not such a status.
std::size_t nodes_in_status(std::string_view json);

// How many nodes of the job with this status remain when `leaving` of them get SIGTERM: an elastic
// job continues while enough nodes are left. Otherwise 0.
std::size_t nodes_that_continue(std::string_view json, std::size_t leaving);

// The log files of a rank, and the label of its lines on the console.
struct RankLogs {
  int rank = 0;
  std::string label{};
  std::string stdout_file{};  // empty: none
  std::string stderr_file{};
  bool operator==(const RankLogs&) const = default;
};

// Those of a node's workers in the latest round. Without ranks before its workers start.
struct NodeLogs {
  std::optional<int> round{};
  std::vector<RankLogs> ranks{};
  bool operator==(const NodeLogs&) const = default;
};

// Absent if `json` is not the status of a node.
std::optional<NodeLogs> node_logs(std::string_view json);

// 0 before the first round.
int world_size_in(std::string_view json);

// The files of the same workers in another round.
NodeLogs in_round(NodeLogs logs, int round);

// A line of `drun list`. Texts are printable.
struct JobRow {
  std::string job{};  // the run id
  std::string state{};
  std::string nodes{};  // "2"; "1/3" while two of three are missing
  std::string workers{};
  std::string restarts{};  // "1/3" of at most three
  std::string up{};
  std::string command{};
  bool operator==(const JobRow&) const = default;
};

// Absent if `json` is not the status of a job.
std::optional<JobRow> job_row(std::string_view json);

// Of a job whose agent does not answer.
JobRow silent_row(const StatusNames& names);

// A header and a line per row, in aligned columns. With `columns`, random run ids are short, and
// commands are cut so that lines have at most that many characters.
std::string job_table(const std::vector<JobRow>& rows, std::optional<std::size_t> columns);

// --- The picture of `drun status --watch` on a terminal: the status as text, and below it the
// states of each node in the last seconds

struct ScreenSize {
  std::size_t columns = 80;
  std::size_t rows = 24;
};

// Overwrites the previous picture without clearing it first, so that it does not flicker. Lines are
// cut to the columns; if there are more lines than rows, the last row says how many are missing.
std::string repaint(std::string_view text, ScreenSize size);

// One letter per query and node of a job, for the nodes that its status lists.
class StateHistory {
 public:
  // `job_json`: schema drun.job/1; anything else is ignored.
  void add(std::string_view job_json);
  // Empty without nodes. The latest letters that fit into `columns`, for the first nodes.
  std::string text(std::size_t columns, bool has_color) const;

 private:
  static constexpr std::size_t kMostNodes = 32;
  static constexpr std::size_t kMostLetters = 512;

  // By job and row; the name and the letters.
  std::map<std::pair<std::string, std::size_t>, std::pair<std::string, std::string>> nodes_;
};

}  // namespace drun
