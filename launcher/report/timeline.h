// core. What happened to a job, from the events of one or more of its nodes
// (agent/status/events.h): the one model that the HTML report, its text and `drun report` show.
//
// Input:   lines that may be cut short, mixed, from other versions, or written by somebody else.
//          A line that is no event is counted and left out.
// Time:    seconds since the job's first event, by each agent's steady clock. Clocks of nodes are
//          aligned by the rounds that they have in common.
// Owner:   values; copy freely.   Thread: any.   Errors: none. Never throws.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/status/phases.h"

namespace drun::timeline {

using agent::Phase;
using PhaseSeconds = std::array<double, agent::kPhaseCount>;

inline constexpr std::size_t kMostLineBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMostRecords = std::size_t{1} << 21;
inline constexpr std::size_t kMostAgents = 16'384;
inline constexpr std::size_t kMostRounds = 4096;
inline constexpr std::size_t kMostMarks = 4096;
inline constexpr std::size_t kMostSpans = 4096;  // of one node
inline constexpr int kMostLocalRanks = 4096;
inline constexpr std::size_t kMostSlow = 8;

struct Span {
  Phase phase = Phase::Waiting;
  double begin_s = 0;
  double end_s = 0;
};

// A failure, with what its worker left behind.
struct FailureText {
  int rank = 0;
  int local_rank = 0;
  int node_rank = 0;
  std::string host{};
  int pid = 0;
  int round = 0;
  int exit_code = 0;
  std::string ended{};
  bool out_of_memory = false;
  std::string message{};
  std::string traceback{};
  std::vector<std::string> stderr_tail{};
  std::string stderr_file{};
  double at_s = 0;
};

struct Rank {
  int rank = 0;
  int local_rank = 0;
  int round = 0;
  int pid = 0;
  std::optional<double> began_s{};
  std::optional<double> alive_s{};  // its first line
  std::optional<double> ended_s{};
  std::optional<int> exit_code{};
  std::string ended{};  // in words; empty: it has not ended, as far as is known
  bool has_failed = false;
  bool stopped_by_drun = false;
  std::optional<std::uint64_t> peak_memory_bytes{};
  std::optional<double> processor_s{};
  std::string cpus{};
  std::string devices{};
  std::string log{};  // directory
};

struct Node {
  std::optional<int> node_rank{};  // of its last world
  std::string host{};
  int agent_pid = 0;
  double begin_s = 0;
  double end_s = 0;
  bool has_ended = false;  // it has written the job's end; else it was killed, or still runs
  bool is_running = false;
  std::vector<Span> spans{};
  PhaseSeconds totals{};
  std::vector<Rank> ranks{};             // of its last round, by local rank
  std::vector<Rank> earlier_failures{};  // that failed in rounds before
};

struct Round {
  int round = 0;
  int restarts = 0;
  int world_size = 0;
  int node_count = 0;
  bool is_preflight = false;
  bool has_ended = false;
  bool has_succeeded = false;  // on each node that has told
  double begin_s = 0;
  double end_s = 0;
  std::string reason{};  // why it was stopped; empty: it was not, or nothing is known
  std::optional<FailureText> failure{};  // its first
};

enum class MarkKind { Failure, NodeLost, Election, Signal, Hang, LeftOut, Preemption, Fault };
const char* word_of(MarkKind kind);  // "failure"

struct Mark {
  MarkKind kind = MarkKind::Failure;
  double at_s = 0;
  std::size_t node = 0;  // index
  std::string text{};
};

struct Slowest {
  double seconds = 0;
  std::string who{};  // "rank 5", "node 1 (gpu1)"
};

enum class SlowKind {
  Arrival,    // of a node, after the first one
  Start,      // of a rank: from its start to its first line
  Processor,  // processor time of a rank
};

// A rank or node of the last round that differs from the rest.
struct Slow {
  SlowKind kind = SlowKind::Arrival;
  std::string who{};
  double seconds = 0;
  double median_s = 0;  // of all
};

struct Job {
  std::string run_id{};
  std::string outcome = "unknown";  // as in the report's JSON; "running"; "unknown": no node told
  std::string message{};
  int restarts = 0;
  std::string started{};  // UTC, as in events
  double wall_s = 0;
  std::vector<std::string> command{};
  std::string drun_version{};
  std::string kernel{};
  std::vector<std::pair<std::string, std::string>> environment{};
  std::vector<Node> nodes{};    // by node rank
  std::vector<Round> rounds{};  // in order
  std::vector<Mark> marks{};    // in order of time
  std::optional<FailureText> root_cause{};
  std::vector<FailureText> failures{};  // of the round that ended the job, the first ones
  // The mean over all nodes, each from the job's begin to its end (a node that is not there yet, or
  // not any more, waits): sums to wall_s.
  PhaseSeconds ledger{};
  std::array<Slowest, agent::kPhaseCount> slowest{};
  std::vector<Slow> slow{};  // the slowest first, at most kMostSlow of each kind
  int world_size = 0;        // of the last round
  int node_count = 0;
  std::size_t unreadable_lines = 0;
  std::size_t other_jobs = 0;  // in the same files
  std::vector<std::string> notes{};
};

// Takes lines, from any number of files in any order, and makes the job of them.
class Builder {
 public:
  Builder();
  ~Builder();
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  // Whole text of a file, or a piece that ends with a whole line.
  void take(std::string_view lines);

  struct Now {
    double since_epoch_s = 0;
    // Whether that agent runs at this moment: its last phase then lasts until now.
    std::function<bool(std::string_view host, int agent_pid)> is_running{};
  };
  // Absent: there is no event in what was taken. Of several jobs the one that began last.
  std::optional<Job> build(const Now& now) const;
  std::optional<Job> build() const { return build(Now{}); }

 private:
  struct Record;
  struct Agent;
  std::map<std::pair<std::string, int>, std::vector<Record>> agents_;  // by host and pid
  std::size_t records_ = 0;
  std::size_t unreadable_lines_ = 0;
  bool is_full_ = false;
};

}  // namespace drun::timeline
