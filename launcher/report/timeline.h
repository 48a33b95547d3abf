// core. The history of a job, built from the events of one or more of its nodes
// (agent/status/events.h). The HTML report, its text form and `drun report` all present this model.
//
// Input lines may be truncated, interleaved, from other versions of drun, or from other programs.
// Lines that are not events are counted and skipped.
//
// Times are in seconds since the job's first event, by the steady clock of each agent. The clocks
// of nodes are aligned by the rounds that they have in common. Never throws.
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

#include "agent/diagnosis/diagnosis.h"
#include "agent/status/phases.h"
#include "rendezvous/job/outcome.h"

namespace drun::timeline {

using agent::Phase;
using PhaseSeconds = std::array<double, agent::kPhaseCount>;

inline constexpr std::size_t kMostLineBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMostRecords = std::size_t{1} << 21;
inline constexpr std::size_t kMostAgents = 16'384;
inline constexpr std::size_t kMostRounds = 4096;
inline constexpr std::size_t kMostMarks = 4096;
inline constexpr std::size_t kMostSpans = 4096;  // per node
inline constexpr int kMostLocalRanks = 4096;
inline constexpr std::size_t kMostSlow = 8;

struct Span {
  Phase phase = Phase::Waiting;
  double begin_s = 0;
  double end_s = 0;
};

// A failure, with the data that its worker left. Events have no role, time, program and error file.
struct TimedFailure : Failure {
  double at_s = 0;
};

struct Rank {
  int rank = 0;
  int local_rank = 0;
  int round = 0;
  int pid = 0;
  std::optional<double> began_s{};
  std::optional<double> alive_s{};  // first line of output
  std::optional<double> ended_s{};
  std::optional<int> exit_code{};
  std::string ended{};  // as text; empty: still running or unknown
  bool has_failed = false;
  bool stopped_by_drun = false;
  std::optional<std::uint64_t> peak_memory_bytes{};
  std::optional<double> processor_s{};
  std::string cpus{};
  std::string devices{};
  std::string log{};  // directory
};

struct Node {
  std::optional<int> node_rank{};  // in its last world
  std::string host{};
  int agent_pid = 0;
  double begin_s = 0;
  double end_s = 0;
  bool has_ended = false;  // has reported the end of the job; otherwise it was killed or is running
  bool is_running = false;
  std::vector<Span> spans{};
  PhaseSeconds totals{};
  std::vector<Rank> ranks{};             // in its last round, by local rank
  std::vector<Rank> earlier_failures{};  // ranks that failed in earlier rounds
};

std::string name_of(const Node& node);  // "node 1 (gpu1)"

struct Round {
  int round = 0;
  int restarts = 0;
  int world_size = 0;
  int node_count = 0;
  bool is_preflight = false;
  bool has_ended = false;
  bool has_succeeded = false;  // on every node that reported
  double begin_s = 0;
  double end_s = 0;
  std::string reason{};                   // why it was stopped; empty: not stopped, or unknown
  std::optional<TimedFailure> failure{};  // the first one
};

enum class MarkKind {
  Failure,
  NodeLost,
  Election,
  Signal,
  Hang,
  Timeout,
  LeftOut,
  Preemption,
  Fault,
  Slow,
};
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
  Arrival,    // of a node, relative to the first one
  Start,      // of a rank, from start to first line of output
  Processor,  // CPU time of a rank
  Speed,      // slower than the others for a minute, in any round
};

// A rank or node of the last round that deviates from the others.
struct Slow {
  SlowKind kind = SlowKind::Arrival;
  std::string who{};  // Speed: the whole sentence
  double seconds = 0;
  double median_s = 0;  // over all ranks or nodes
};

struct Job {
  std::string run_id{};
  std::string outcome = "unknown";  // as in the JSON report; or "running"; "unknown": not reported
  std::string message{};
  int restarts = 0;
  std::string started{};  // UTC, as in events
  double wall_s = 0;
  std::vector<std::string> command{};
  std::string drun_version{};
  std::string kernel{};
  std::vector<std::pair<std::string, std::string>> environment{};
  std::vector<Node> nodes{};    // by node rank
  std::vector<Round> rounds{};  // by number
  std::vector<Mark> marks{};    // by time
  std::optional<TimedFailure> root_cause{};
  std::string hang_stacks{};  // of the last hang of the last round, as lines (evidence_lines)
  std::vector<TimedFailure> failures{};  // the first ones of the job's last round
  // As the agents made it from all failures. Absent: no node has reported the end of the job.
  std::optional<agent::Diagnosis> diagnosis{};
  // Mean over all nodes, each from the begin to the end of the job; a node counts as waiting before
  // it joins and after it leaves. The sum is wall_s.
  PhaseSeconds ledger{};
  std::array<Slowest, agent::kPhaseCount> slowest{};
  std::vector<Slow> slow{};  // slowest first, at most kMostSlow per kind
  int world_size = 0;        // of the last round
  int node_count = 0;
  std::size_t unreadable_lines = 0;
  std::size_t other_jobs = 0;  // found in the same files
  std::vector<std::string> notes{};
};

struct EventRecord;  // one line

// Builds a job from lines of any number of files in any order.
class Builder {
 public:
  Builder();
  ~Builder();
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  // Takes the contents of a file, or a part that ends at the end of a line.
  void take(std::string_view lines);

  struct Now {
    double since_epoch_s = 0;
    // Whether that agent is running now, so that its last phase has not ended.
    std::function<bool(std::string_view host, int agent_pid)> is_running{};
  };
  // Selects the job that began last if there are several. Absent if no event was taken.
  std::optional<Job> build(const Now& now) const;
  std::optional<Job> build() const { return build(Now{}); }

 private:
  std::map<std::pair<std::string, int>, std::vector<EventRecord>> agents_;  // by host and pid
  std::size_t records_ = 0;
  std::size_t unreadable_lines_ = 0;
  bool is_full_ = false;
};

}  // namespace drun::timeline
