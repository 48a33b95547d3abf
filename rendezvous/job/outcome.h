// core. The outcome of a job, which is the same on every node and from which report, JSON and exit
// code follow; and the record of a worker's failure that messages, outcomes, reports and JSON
// share.
//
// Units:   times are wall-clock (display only); control_wire.h limits the length of strings.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/job/phase_times.h"
#include "rendezvous/job/slow_rank.h"

namespace drun {

using WallTime = std::chrono::time_point<std::chrono::system_clock, std::chrono::microseconds>;

struct Exited {
  int code = 0;
  bool operator==(const Exited&) const = default;
};
struct Killed {
  int signal = 0;
  bool core_dumped = false;
  bool operator==(const Killed&) const = default;
};
// The program could not be executed: nothing ran. `error_number` is execve's errno.
struct NotStarted {
  int error_number = 0;
  bool operator==(const NotStarted&) const = default;
};
// drun stopped it because it showed no activity (--hang-timeout).
struct Hung {
  std::string how;  // "no output and no CPU time for 60 s, last in all_reduce #812"
  bool operator==(const Hung&) const = default;
};
using ExitStatus = std::variant<Exited, Killed, NotStarted, Hung>;

bool is_success(const ExitStatus& status);

// The exit code of a shell: n, 128+n for a signal, 127 not found, 126 not executable; 123 hung.
int exit_code(const ExitStatus& status);

// "exit code 3", "signal 11 (SIGSEGV, segmentation fault), core dumped", "not started: no such file
// or directory", "hung: no output and no CPU time for 60 s".
std::string to_string(const ExitStatus& status);

// "SIGTERM" for 15; "SIGRTMIN+2"; "signal 99" without a name.
std::string signal_name(int signal);

struct Failure {
  int rank = 0;
  int local_rank = 0;
  int node_rank = 0;
  int round = 0;  // DRUN_ROUND of the round in which it happened
  std::string role;
  std::string host;
  int pid = 0;
  ExitStatus status;
  WallTime time;               // for display: when the agent saw it, or the error file's own time
  bool out_of_memory = false;  // killed by the kernel's out-of-memory killer
  std::string program;         // argv[0] of the worker
  std::string error_file;      // path on its node; empty: none was written
  std::string message;         // the error file's message; empty: none
  std::string traceback;       // the error file's traceback; empty: none
  std::vector<std::string> stderr_tail;  // at most 20 last lines
  std::string stderr_file;               // path on its node when stderr was redirected or teed
  std::string injected{};                // the fault of --inject that caused it; not on the wire
  bool operator==(const Failure&) const = default;
};

// The failure without its message, traceback and stderr tail, which can be long.
Failure brief(Failure failure);

// --- Outcome

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
// An agent received a termination signal.
struct Interrupted {
  int signal = 0;
  std::optional<int> node_rank{};  // absent: not assigned yet, in an elastic job
  std::string host;
  bool operator==(const Interrupted&) const = default;
};
// The job's time was up: the workers got a signal and time to save their state, and were stopped.
struct Preempted {
  std::string reason;  // "the time limit of Slurm job 7 ends at 14:00:00"
  bool operator==(const Preempted&) const = default;
};
// An agent was lost during a round: its connection closed, or it missed its heartbeats.
// `is_coordinator`: it was the coordinator.
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
using Ending = std::variant<Succeeded, WorkersFailed, Interrupted, NodeLost, NotRun, Preempted>;

// A node that was excluded from an elastic world: --exclude-after, --exclude-slow.
struct LeftOut {
  int node_rank = 0;  // in its last world
  std::string host;
  int round = 0;  // that world's
  std::string reason;
  bool operator==(const LeftOut&) const = default;
};

// A fault that --inject has caused. Every agent receives a message about each one when it is
// injected. The agent that reports the outcome fills in the outcome's list, which is not on the
// wire.
struct InjectedFault {
  std::string fault{};             // "kill:rank=3@20s"
  std::optional<WallTime> time{};  // absent: it was not injected
  std::optional<int> rank{};       // absent: of the node
  int node_rank = 0;
  std::string host{};
  int round = 0;
  std::string followed{};  // "round 1 began 0.8 s later on 3 nodes"
  bool operator==(const InjectedFault&) const = default;
};

struct Outcome {
  Ending ending = Succeeded{};
  std::string run_id{};
  int node_count = 0;
  int world_size = 0;
  int restarts = 0;  // restarts used
  int max_restarts = 0;
  std::size_t failures_left_out = 0;      // beyond what the wire carries
  std::chrono::milliseconds duration{0};  // from the first world to the end; 0: no world began
  std::vector<LeftOut> left_out{};        // nodes, in order of time
  std::vector<InjectedFault> faults{};    // in order of time
  JobTimes times{};                       // of the nodes of the last world
  std::vector<SlowRank> slow{};           // in order of time
  bool operator==(const Outcome&) const = default;
};

}  // namespace drun
