// core. The starter's machine: logging in on all hosts, nothing before all are ready, then the job,
// then the end.
//
//             Began        all said Hello, none with a problem         every session ended
//   (queued) ------> Starting ------------------------------> Running ------------------> over
//                        |  all have answered, some cannot                                   ^
//                        +-----> Failed: the others are let go -----------------------------+
//
//   A host: Queued -> LoggingIn -> Ready -> Running -> Ended; Leaving once we let go of it or
//   killed its ssh. At most `fanout` are LoggingIn.
//
// Rules:   the first signal goes to node 0, whose agent ends the job in order; a kill to all. Once
//          node 0's session has ended, or the first signal came before the start, the rest have
//          kEndGrace. A node that ends before node 0 while the job runs has not taken part: after
//          kEndGrace node 0 is told to end, and that node is the cause. One that could not reach
//          node 0 has said so: then node 0 is told to end at once.
// Elastic: with least_hosts, hosts with a problem are told of and left out while so many are ready,
//          and more than half of the seats. A host that is lost in the middle is told of, and
//          nothing else: the agents know whether the job goes on. Signals go to all. Once one has
//          said how the job ended, the rest have kEndGrace. When so many could not reach the others
//          that fewer than least_hosts are left, the rest is told to end.
// Owner:   values; copy freely.   Thread: any, one at a time.   Errors: none.
// Units:   `now` is the caller's steady clock.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/plan/host_plan.h"
#include "launcher/remote/agent_protocol.h"

namespace drun::hosts {

using Time = std::chrono::steady_clock::time_point;

inline constexpr std::chrono::seconds kEndGrace{10};
inline constexpr std::chrono::seconds kReminder{10};
inline constexpr int kSshFailed = 255;

enum class HostState { Queued, LoggingIn, Ready, Running, Leaving, Ended };

struct HostProgress {
  HostState state = HostState::Queued;
  Time since{};           // of LoggingIn
  std::string problem{};  // why the job cannot start here; empty: none known
  int problem_code = 0;   // exit code that goes with it
  Place place{};          // where its agent listens
  std::string machine{};
  std::optional<End> end{};   // the agent's last words
  std::optional<int> code{};  // ssh's exit code
  bool operator==(const HostProgress&) const = default;
};

struct Launching {
  enum class Phase { Starting, Failed, Running };
  Phase phase = Phase::Starting;
  std::vector<HostProgress> hosts{};
  std::string link = "ssh";  // what an agent is started by
  int fanout = 64;
  std::chrono::milliseconds login_timeout{0};
  std::optional<int> signal{};              // the first
  std::optional<Time> remind_at{};          // say who has not answered
  std::optional<Time> end_by{};             // then every ssh that is left is killed
  std::optional<std::size_t> left_early{};  // the node that ended first and is the cause
  std::optional<Time> end_node_0_at{};      // because of that
  int least_hosts = 0;                      // 0: all of them
  std::vector<std::size_t> seats{};         // with least_hosts: who may coordinate the job
  std::vector<std::size_t> endpoints{};     // whose places all hosts are told; empty: nothing
  std::optional<std::size_t> said_last{};   // with least_hosts: whose End is the job's
  bool operator==(const Launching&) const = default;
};

Launching launching_of(std::size_t hosts, int fanout, std::chrono::milliseconds login_timeout);

struct Began {};
struct HelloCame {
  std::size_t host = 0;
  Hello hello{};
};
struct EndCame {
  std::size_t host = 0;
  End end{};
};
struct SessionEnded {
  std::size_t host = 0;
  int code = 0;         // ssh's exit code
  std::string words{};  // what it and the host said before Hello
};
struct SignalCame {
  int signal = 0;
};
struct KillCame {};
struct PassOn {  // to the workers
  int signal = 0;
};
struct Woken {};
using Event =
    std::variant<Began, HelloCame, EndCame, SessionEnded, SignalCame, KillCame, PassOn, Woken>;

struct LogIn {
  std::size_t host = 0;
  bool operator==(const LogIn&) const = default;
};
struct Say {  // a line to the agent
  std::size_t host = 0;
  std::string line{};
  bool operator==(const Say&) const = default;
};
struct LetGo {  // end of its standard input
  std::size_t host = 0;
  bool operator==(const LetGo&) const = default;
};
struct KillSsh {
  std::size_t host = 0;
  bool operator==(const KillSsh&) const = default;
};
struct Remind {};
// The job goes without that host: `problem` says why it is not begun there; empty: it was lost.
struct GoWithout {
  std::size_t host = 0;
  std::string problem{};
  bool operator==(const GoWithout&) const = default;
};
using Action = std::variant<LogIn, Say, LetGo, KillSsh, Remind, GoWithout>;

std::vector<Action> step(Launching& state, const Event& event, Time now);
std::optional<Time> deadline(const Launching& state);
bool is_over(const Launching& state);

}  // namespace drun::hosts

// core. How a job over ssh ended, or why it did not begin, in words and as an exit code.
// Thread:  any.

namespace drun::hosts {

struct LaunchEnd {
  int exit_code = 0;
  std::string text{};    // for stderr, with a newline after each line; may be empty
  std::string report{};  // JSON for --report; empty: there is none
  std::string events{};  // of all hosts that have told, for the HTML report
  bool operator==(const LaunchEnd&) const = default;
};

// One report, the job's: node 0's, or that of the node that was the cause. 0 only when node 0's
// agent said so. Requires is_over(state).
LaunchEnd launch_end(const Launching& state, const HostPlan& plan, const std::string& invoked_as);

// Nothing was tried, because of that.
LaunchEnd launch_end(const Error& error, const HostPlan& plan, const std::string& invoked_as);

// "node03 is left out: Connection refused".
std::string going_without_text(const GoWithout& without, const HostPlan& plan);

// "no answer yet from node03, node04".
std::string reminder_text(const Launching& state, const HostPlan& plan);

// "1 of 3 hosts are ready, no answer yet from node03, node04; 12s"; absent once none is waited for.
std::optional<std::string> progress_text(const Launching& state, const HostPlan& plan,
                                         std::chrono::milliseconds since);

}  // namespace drun::hosts
