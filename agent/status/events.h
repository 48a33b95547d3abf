// core. The events on a node during its job, and their file: `--events`.
//
// Order:   AgentStarted, then per round RoundBegan .. RoundEnded, then JobEnded.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "agent/diagnosis/diagnosis.h"
#include "agent/output/file_writer.h"
#include "agent/output/stderr_record.h"
#include "agent/spec.h"
#include "agent/stacks/evidence.h"
#include "agent/status/phases.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/job/outcome.h"
#include "rendezvous/job/world.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

struct AgentStarted {
  int local_world_size = 1;
  std::vector<std::string> command;
  std::string drun_version{};
  std::string kernel{};
  std::string log_directory{};                  // empty: no files
  std::vector<EnvironmentEntry> environment{};  // reported_environment() of redaction.h
  std::vector<WorkerPlacement> placements{};    // by local rank; empty: none is bound
};
// This node has entered a phase.
struct PhaseBegan {
  Phase phase = Phase::Waiting;
};
// The agent has joined a coordinator. `term`: of its election; 0: not elected.
struct CoordinatorJoined {
  std::uint64_t term = 0;
};
struct RoundBegan {
  World world;
};
struct WorkerStarted {
  int round = 0;
  int rank = 0;
  int local_rank = 0;
  int pid = 0;
};
// The worker has printed for the first time in this round.
struct WorkerAlive {
  int round = 0;
  int rank = 0;
  int local_rank = 0;
};
struct WorkerFailed {
  Failure failure;
};
// A worker has ended, on its own or stopped by drun. The usage includes children that it waited
// for.
struct WorkerEnded {
  int round = 0;
  int rank = 0;
  int local_rank = 0;
  int pid = 0;
  ExitStatus status{};
  bool stopped_by_drun = false;
  std::optional<WorkerUsage> usage{};
};
// A worker of this node has shown no activity for --hang-timeout.
struct HangSuspectedHere {
  Failure failure;
};
// All nodes have examined a hang, and the round is stopped because of it.
struct HangFoundAnywhere {
  int round = 0;
  std::string cause;
  Evidence evidence;
};
// A fault of --inject is about to be injected, on this node or on another one.
struct FaultInjectedAnywhere {
  InjectedFault fault;
};
// A rank or node of the job is slower than the others.
struct SlowRankFound {
  SlowRank slow;
};
// The job continues without that node.
struct NodeLeftOut {
  LeftOut node;
};
// The workers of this node are being stopped, for a cause on any node.
struct RoundStopping {
  int round = 0;
  std::string cause{};  // as text; empty: the end of the job
};
// No worker of the round is running on this node any more.
struct RoundEnded {
  int round = 0;
  bool has_succeeded = false;       // all of this node's workers returned 0
  std::vector<Failure> failures{};  // of this node's workers, in full; the first kMostEventFailures
};
struct SignalCame {
  int signal = 0;
};
struct JobEnded {
  Outcome outcome;
  std::vector<ReportedTimeout> timeouts{};  // by ranks of this node, before the stop
};
using Event = std::variant<AgentStarted, PhaseBegan, CoordinatorJoined, RoundBegan, WorkerStarted,
                           WorkerAlive, WorkerFailed, WorkerEnded, HangSuspectedHere,
                           HangFoundAnywhere, FaultInjectedAnywhere, SlowRankFound, NodeLeftOut,
                           RoundStopping, RoundEnded, SignalCame, JobEnded>;

// An event contains up to this number of failures, with truncated texts.
inline constexpr std::size_t kMostEventFailures = 4;

// Null: of class None. Also in the report.
nlohmann::ordered_json diagnosis_json(const Diagnosis& diagnosis);

// The origin of events.
struct EventPlace {
  std::string run_id;
  std::string host;
  int pid = 0;  // the agent's
};

// One JSON object in one line, newline included: "time", "event", "run_id", "host", "agent_pid",
// then the event's own fields (docs/reference/events.md). `up`: time since the agent began, by its
// steady clock. Bytes that are not UTF-8 become U+FFFD. Never throws.
std::string event_line(const Event& event, const EventPlace& place, WallTime time,
                       std::optional<std::chrono::microseconds> up = std::nullopt);

// --- The event file: `--events FILE`, one line per event, written at once
//
// File:    opened for appending, so several agents of a machine can share it (a line is one write).
//          Created with mode 0600. Symbolic links are not followed, except below /dev. Writing to a
//          pipe or terminal never waits: lines that it does not accept are lost.
// Writes:  in a separate thread (output/file_writer.h), so a file system that hangs delays only
//          events. At most kMostEventBytes wait; events beyond that are lost.
// Owner:   Agent.   Thread: the io_context's only.
// Errors:  open: System, with the file and the reason; it blocks, before the job begins. Later
//          errors and lost events are logged once.

inline constexpr std::size_t kMostEventBytes = std::size_t{1} << 20;

// Writes an agent's events to that file, and keeps them in memory for the report.
class EventLog {
 public:
  EventLog() : began_(std::chrono::steady_clock::now()) {}
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  // `file`: empty for none. `keeps`: whether take_kept() will be called.
  Result<void> open(asio::io_context& io, const std::string& file, bool keeps, EventPlace place,
                    const Log& log);

  void write(const Event& event);
  // Writes WorkerStarted for each worker; pid 0: not started.
  void write_started(const World& world, const std::vector<int>& pids);

  // The lines so far. Beyond kMostKeptBytes, all events except JobEnded are dropped.
  static constexpr std::size_t kMostKeptBytes = std::size_t{16} << 20;
  std::string take_kept() { return std::move(kept_); }
  // Events that are not written yet keep the io_context running no longer; finish() waits for them.
  void let_loop_end() {
    if (writer_) writer_->let_loop_end();
  }
  // Since when the file has accepted nothing; absent if no event waits.
  std::optional<FileWriter::Time> waits_since() const {
    return writer_ ? writer_->waits_since() : std::nullopt;
  }
  // Call after the loop's end, while something else keeps it running: waits until everything is
  // written, at most until `deadline` (absent: without limit; read again after each event).
  void finish(const std::optional<FileWriter::Time>& deadline);

 private:
  void append(std::string line);
  void warn_once(const std::string& reason);

  std::chrono::steady_clock::time_point began_;
  EventPlace place_;
  bool keeps_ = false;
  std::string kept_;
  std::string path_;
  std::optional<Log> log_;
  asio::io_context* io_ = nullptr;
  std::shared_ptr<UniqueFd> file_;      // a write that hangs at the end holds it, too
  std::unique_ptr<FileWriter> writer_;  // null: no file
  std::size_t waiting_bytes_ = 0;
  bool has_warned_ = false;
};

}  // namespace drun::agent
