// core. From wishes to a plan: options and host facts become the one value that the agent obeys, or
// a clear error. Every default and every rule of torchrun's command line is decided here.
//
// Owner:   values; copy freely.   Thread: any.
// Errors:  Usage, naming the option, the value, the reason and the remedy. Never throws.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/spec.h"
#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "launcher/plan/engine.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/result.h"
#include "rendezvous/job/outcome.h"

namespace drun {

// The program cannot run on this node, as far as one can see before trying.
struct CannotStart {
  NotStarted status{};
  std::string message{};  // with the remedy
  std::string program{};  // of several the one that it is; else empty, as the next
  std::string role{};
  bool operator==(const CannotStart&) const = default;
};

// In front of lines of several nodes.
inline constexpr const char* kHostLabel = "[${host}:${rank}]: ";
inline constexpr const char* kHostRoleLabel =
    "[${host}:${rank} ${role_name}]: ";  // several programs

// The label that the user chose, by the option or by torchrun's variable.
std::optional<std::string> chosen_label(const Options& options, const HostFacts& host);

// --report: at most one of each kind.
struct ReportFiles {
  std::optional<std::string> json{};
  std::optional<std::string> html{};  // names that end in .html
};
Result<ReportFiles> report_files(const std::vector<std::string>& names, const HostFacts& host);

struct Plan {
  AgentSpec agent{};
  Origins origins{};
  bool is_doctor = false;
  bool explain = false;  // say those before anything starts
  // Set only when this is the job's one node: say `message`, end with exit_code(status), start
  // nothing. With more nodes it is a warning instead, and the round's failure tells everyone.
  std::optional<CannotStart> cannot_start{};
  std::optional<std::string> report_file{};
  std::optional<std::string> html_report_file{};
  ExitCodeStyle exit_codes = ExitCodeStyle::Drun;
  bool requeues = false;  // a preempted job is put back into Slurm's queue
  std::optional<DryRun> dry_run{};
  LogLevel log_level = LogLevel::Info;
  std::vector<std::string> notes{};     // for the log, level debug
  std::vector<std::string> warnings{};  // for the log, level warning
  bool operator==(const Plan&) const = default;
};

Result<Plan> make_plan(const Options& options, const HostFacts& host);

}  // namespace drun
