// core. Makes the plan: turns options and host facts into the one value that configures the agent,
// or an error. All defaults, and all rules of torchrun's command line, are applied here.
//
// Errors:  Usage, naming the option, the value, the reason and the remedy; System if placement
//          cannot read the machine. Never throws.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "agent/spec.h"
#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "launcher/plan/engine.h"
#include "launcher/plan/rendezvous.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/result.h"
#include "rendezvous/job/outcome.h"

namespace drun {

// A problem, detected in advance, that prevents the program from running on this node.
struct CannotStart {
  NotStarted status{};
  std::string message{};  // includes the remedy
  std::string program{};  // with several programs: the affected one, and its role
  std::string role{};
  bool operator==(const CannotStart&) const = default;
};

// Default label of lines in jobs with several nodes.
inline constexpr const char* kHostLabel = "[${host}:${rank}]: ";
inline constexpr const char* kHostRoleLabel =
    "[${host}:${rank} ${role_name}]: ";  // several programs

// The label chosen by the user with the option or torchrun's variable.
std::optional<std::string> chosen_label(const Options& options, const HostFacts& host);

// --- Log files

// Whether --log-dir names a directory.
bool names_log_directory(const Options& options);
// The absolute path for --log-dir. Absent: a temporary directory; empty: no files.
std::optional<std::string> plan_log_dir(const Options& options, const HostFacts& host);
// Rejects options that do not fit --output=raw or --gather-logs.
Result<void> check_output(const Options& options);

// --report: at most one file of each kind.
struct ReportFiles {
  std::optional<std::string> json{};
  std::optional<std::string> html{};  // name ends in .html
};
Result<ReportFiles> report_files(const std::vector<std::string>& names, const HostFacts& host);

// The signals that stop the job, by --signals-to-handle. Adds warnings about unusable names.
std::vector<int> plan_signals(const Options& options, PlanNotes& notes);

struct Plan {
  AgentSpec agent{};
  Origins origins{};
  bool is_doctor = false;
  bool explain = false;  // print `origins` before anything starts
  // Set only if this is the job's only node: print `message`, exit with exit_code(status), start
  // nothing. With more nodes it is a warning, and the round's failure reports it to every node.
  std::optional<CannotStart> cannot_start{};
  std::optional<std::string> report_file{};
  std::optional<std::string> html_report_file{};
  ExitCodeStyle exit_codes = ExitCodeStyle::Drun;
  bool requeues = false;  // a preempted job is put back into Slurm's queue
  std::optional<DryRun> dry_run{};
  LogLevel log_level = LogLevel::Info;
  std::vector<std::string> notes{};     // log level debug
  std::vector<std::string> warnings{};  // log level warning
  bool operator==(const Plan&) const = default;
};

Result<Plan> make_plan(const Options& options, const HostFacts& host);

// --- As text and as JSON (plan_text.cc): the output of --dry-run. docs/reference/json.md describes
// the JSON form.

// Ends with a newline. Lines are not wrapped.
std::string plan_text(const Plan& plan);
std::string plan_json(const Plan& plan);

// --- The placement of workers (placement.cc): CPUs, memory, devices and threads of every worker,
// and the wrapper command of some

// Sets the worker's placements, device variable and wrapper command; leaves them empty if no option
// asks for them. Adds to `notes`.
Result<void> plan_placement(WorkerSpec& worker, const Options& options, const HostFacts& host,
                            const JoinSpec& join, PlanNotes& notes);

// --- The job's deadline, from --time-limit or Slurm

// Nothing if none of --time-limit, --signal-before and --requeue is given. Errors: Usage, if there
// is no deadline, no job to requeue, or no time between the signal and the stop.
Result<std::optional<DeadlineSpec>> plan_deadline(const Options& options, const HostFacts& host,
                                                  std::chrono::milliseconds shutdown_timeout);

}  // namespace drun
