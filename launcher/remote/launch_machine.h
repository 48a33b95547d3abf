// core. State machine of the launcher: logs in to all hosts, starts the job when all are ready, and
// handles its end.
//
//             Began        all sent Hello, none with a problem         every session ended
//   (queued) ------> Starting ------------------------------> Running ------------------> over
//                        |  all answered, some cannot start, or the plans do not fit         ^
//                        +-----> Failed: releases the others -------------------------------+
//
//   A host: Queued -> LoggingIn -> Ready -> Running -> Ended; Leaving after its release or after
//   its ssh was killed. At most `fanout` hosts are LoggingIn.
//
// Rules:   The first signal goes to node 0, whose agent ends the job in order. A kill goes to all
//          hosts. After node 0's session has ended, or after a signal before the start, the other
//          hosts have kEndGrace to end. A node that ends before node 0 while the job runs, and does
//          not report success, has not taken part: if node 0 does not end within kEndGrace, that
//          node is the cause, and node 0 is stopped. If a node reports that it could not reach
//          node 0, node 0 is stopped at once. While output arrives, or the console takes none, no
//          grace period ends: a session cannot end before its output has been read.
// Elastic: With least_hosts > 0, hosts with a problem are reported and left out while at least
//          least_hosts, and more than half of the seats, are ready. The loss of a host during the
//          job is only reported, because the agents decide whether the job continues. Signals go to
//          all hosts. After one host has reported how the job ended, the others have kEndGrace. If
//          fewer than least_hosts remain because the others could not reach an endpoint, they are
//          stopped.
//
// `now` is the caller's steady clock.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/hosts/host_plan.h"
#include "launcher/remote/agent_protocol.h"

namespace drun::hosts {

using Time = std::chrono::steady_clock::time_point;

inline constexpr std::chrono::seconds kEndGrace{10};
// Output that the launcher has not read yet arrives without longer pauses. An agent that waits for
// a lost coordinator logs less often.
inline constexpr std::chrono::seconds kLongestOutputPause{2};
inline constexpr std::chrono::seconds kReminder{10};
inline constexpr int kSshFailed = 255;

enum class HostState { Queued, LoggingIn, Ready, Running, Leaving, Ended };

struct HostProgress {
  HostState state = HostState::Queued;
  Time since{};  // start of LoggingIn
  bool is_copied_to = false;
  std::string problem{};  // why the job cannot start here; empty: none known
  int problem_code = 0;   // exit code for `problem`
  Place place{};          // where its agent listens
  std::string machine{};
  std::optional<End> end{};   // the agent's final message
  std::optional<int> code{};  // ssh's exit code
  bool operator==(const HostProgress&) const = default;
};

struct Launching {
  enum class Phase { Starting, Failed, Running };
  Phase phase = Phase::Starting;
  std::vector<HostProgress> hosts{};
  std::string link = "ssh";  // how agents are started, for messages
  int fanout = 64;
  std::chrono::milliseconds login_timeout{0};
  std::optional<int> signal{};              // the first one
  std::optional<Time> remind_at{};          // when to report the hosts without an answer
  std::optional<Time> end_by{};             // when to kill the remaining ssh processes
  std::optional<std::size_t> left_early{};  // the node that ended before node 0
  std::optional<Time> end_node_0_at{};      // because of left_early
  bool is_left_early_cause = false;         // node 0 did not end by itself
  int least_hosts = 0;                      // 0: all hosts
  std::vector<std::size_t> seats{};         // with least_hosts: hosts that may coordinate the job
  std::vector<std::size_t> endpoints{};     // their places are sent to all hosts; empty: none
  std::optional<std::size_t> said_last{};   // with least_hosts: its End counts for the job
  std::optional<Error> refusal{};           // why the job cannot start on any host
  bool operator==(const Launching&) const = default;
};

Launching launching_of(std::size_t hosts, int fanout, std::chrono::milliseconds login_timeout);

struct Began {};
struct CopyBegan {  // drun is being copied to the host
  std::size_t host = 0;
};
struct HelloCame {
  std::size_t host = 0;
  Hello hello{};
};
struct JobRefused {  // the plans of all hosts do not fit the options
  Error error{};
};
struct EndCame {
  std::size_t host = 0;
  End end{};
};
struct SessionEnded {
  std::size_t host = 0;
  int code = 0;         // ssh's exit code
  std::string words{};  // text of ssh and the host before Hello
};
struct SignalCame {
  int signal = 0;
};
struct KillCame {};
struct ForwardSignal {  // forward to the workers
  int signal = 0;
};
struct TimerExpired {
  Time last_output{};  // when output of the hosts arrived last, or waited for the console
};
using Event = std::variant<Began, CopyBegan, HelloCame, JobRefused, EndCame, SessionEnded,
                           SignalCame, KillCame, ForwardSignal, TimerExpired>;

struct LogIn {
  std::size_t host = 0;
  bool operator==(const LogIn&) const = default;
};
struct SendLine {  // send a line to the agent
  std::size_t host = 0;
  std::string line{};
  bool operator==(const SendLine&) const = default;
};
struct CloseStdin {  // close its standard input
  std::size_t host = 0;
  bool operator==(const CloseStdin&) const = default;
};
struct KillSsh {
  std::size_t host = 0;
  bool operator==(const KillSsh&) const = default;
};
struct RemindOfHosts {};
// The job continues without that host. `problem`: why it does not start there; empty: it was lost.
struct ContinueWithout {
  std::size_t host = 0;
  std::string problem{};
  bool operator==(const ContinueWithout&) const = default;
};
using Action = std::variant<LogIn, SendLine, CloseStdin, KillSsh, RemindOfHosts, ContinueWithout>;

std::vector<Action> step(Launching& state, const Event& event, Time now);
std::optional<Time> deadline(const Launching& state);
bool is_over(const Launching& state);

// --- The end of a job over ssh, or why it did not start, as text and as an exit code

struct LaunchEnd {
  int exit_code = 0;
  std::string text{};            // for stderr; every line ends with a newline; may be empty
  std::string report{};          // JSON for --report; empty: none
  std::string events{};          // of all hosts that sent them, for the HTML report
  bool has_lost_stdout = false;  // as AgentEnd's, of the launcher
  bool operator==(const LaunchEnd&) const = default;
};

// The job's report: that of node 0, or of the node that was the cause. The exit code is 0 only if
// node 0's agent reported 0. Requires is_over(state).
LaunchEnd launch_end(const Launching& state, const HostPlan& plan, const std::string& invoked_as);

// For a job that was not started because of `error`.
LaunchEnd launch_end(const Error& error, const HostPlan& plan, const std::string& invoked_as);

// "node03 is left out: Connection refused".
std::string going_without_text(const ContinueWithout& without, const HostPlan& plan);

// "no answer yet from node03, node04; copying drun to node05".
std::string reminder_text(const Launching& state, const HostPlan& plan);

// "1 of 3 hosts are ready, no answer yet from node03, node04; 12s"; nullopt if all have answered.
std::optional<std::string> progress_text(const Launching& state, const HostPlan& plan,
                                         std::chrono::milliseconds since);

}  // namespace drun::hosts
