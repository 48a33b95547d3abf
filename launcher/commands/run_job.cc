#include "launcher/commands/commands.h"

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "agent/process/guardian.h"
#include "agent/spawn/command.h"
#include "agent/stacks/helper_program.h"
#include "agent/supervise/agent.h"
#include "launcher/base/log.h"
#include "launcher/plan/doctor.h"
#include "launcher/plan/plan.h"
#include "launcher/report/report.h"
#include "rendezvous/net/asio.h"

namespace drun {
namespace {

// How the outcome is reported.
struct Reporting {
  ReportStyle style;
  std::string report_file;  // the user's path; empty: none
  std::string html_file{};  // likewise
  std::string events{};     // for html_file
  ExitCodeStyle exit_codes = ExitCodeStyle::Drun;
  bool is_doctor = false;                     // the probe has printed the problems itself
  std::vector<WorkerPlacement> placements{};  // of this node's workers
  std::optional<agent::PhaseTimes> phase_times{};
};

// Returns whether the HTML file was written.
bool write_html(const Outcome& outcome, const Reporting& reporting) {
  return !reporting.html_file.empty() &&
         write_report(reporting.html_file, html_report_of(reporting.events, outcome),
                      reporting.style.invoked_as);
}

// Returns whether the report file was written.
bool write_json(const Outcome& outcome, const Reporting& reporting) {
  if (reporting.report_file.empty()) return false;
  const std::string text =
      report_for_file(reporting.report_file, outcome, exit_code(outcome, reporting.exit_codes),
                      reporting.placements, reporting.style, reporting.phase_times);
  return write_report(reporting.report_file, text, reporting.style.invoked_as);
}

// Reports the end of a job and returns the exit code.
int report_end(const Outcome& outcome, Reporting reporting) {
  // Write the file first, so that the text can name it.
  if (write_json(outcome, reporting)) reporting.style.report_file = reporting.report_file;
  if (write_html(outcome, reporting))
    reporting.style.report_file +=
        (reporting.style.report_file.empty() ? "" : ", ") + reporting.html_file;
  const bool has_printed = reporting.is_doctor && is_verdict(outcome);
  if (!has_printed) std::fputs(report_text(outcome, reporting.style).c_str(), stderr);
  return exit_code(outcome, reporting.exit_codes);
}

// Reports an error that occurs before the agent starts, on one line and in the report files.
int report_early(const Outcome& outcome, const Error& error, const Reporting& reporting) {
  std::fputs(error_text(reporting.style.invoked_as, error).c_str(), stderr);
  write_json(outcome, reporting);
  write_html(outcome, reporting);
  return exit_code(outcome, reporting.exit_codes);
}

int report_error(const Error& error, const Reporting& reporting) {
  return report_early(Outcome{.ending = NotRun{error}}, error, reporting);
}

// The outcome of a single-node job whose program cannot be started, as detected in advance.
Outcome not_started(const Plan& plan) {
  const AgentSpec& agent = plan.agent;
  Failure failure;
  failure.host = agent.host;
  failure.role = plan.cannot_start->role.empty() ? agent.join.role : plan.cannot_start->role;
  failure.program = agent.worker.argv.empty() ? "" : agent.worker.argv.front();
  if (!plan.cannot_start->program.empty()) failure.program = plan.cannot_start->program;
  failure.status = plan.cannot_start->status;
  failure.message = plan.cannot_start->message;
  return Outcome{.ending = WorkersFailed{{std::move(failure)}},
                 .run_id = agent.join.run_id,
                 .node_count = agent.join.node_count};
}

// scontrol prints nothing on success.
void requeue(const std::string& job, const HostFacts& host, const Log& log) {
  constexpr std::chrono::seconds kLimit{30};
  asio::io_context io{1};
  agent::ProgramStarter launcher(io, 1);
  const std::vector<std::string> environment = agent::to_lines(host.environment);
  const agent::Helper scontrol(io, launcher, {"scontrol", "requeue", job}, environment, kLimit,
                               [&](const agent::Helper::End& end) {
                                 std::string reason =
                                     end.trouble.empty() ? end.output : end.trouble;
                                 if (end.is_late) reason = "scontrol did not answer within 30 s";
                                 if (!reason.empty())
                                   log.error("cannot requeue Slurm job " + job + ": " + reason);
                               });
  io.run();
}

Reporting reporting_of(const Options& options, const HostFacts& host) {
  return {.style = {.invoked_as = options.invoked_as,
                    .has_color = host.has_terminal && !variable(host, "NO_COLOR"),
                    .columns = host.columns,
                    .utc_offset = host.utc_offset,
                    .log_directory = "",
                    .report_file = ""},
          .report_file = "",
          .exit_codes = options.exit_code.value_or(ExitCodeStyle::Drun),
          .is_doctor = options.doctor.has_value(),
          .placements = {}};
}

}  // namespace

Log job_log(const Plan& plan, const std::string& invoked_as, const std::string& host) {
  const JoinSpec& join = plan.agent.join;
  LogStyle style{.invoked_as = invoked_as, .level = plan.log_level};
  if (join.node_count > 1)
    style.node = join.elastic ? host : "node " + std::to_string(join.node_rank);
  if (plan.is_doctor) style.is_wanted = is_logged_by_doctor;
  return console_log(style);
}

bool has_shown_stderr(const AgentSpec& spec, const agent::AgentEnd& end) {
  const auto* const failed = std::get_if<WorkersFailed>(&end.outcome.ending);
  if (failed == nullptr || failed->failures.empty() || !end.world) return false;
  const Failure& root = failed->failures.front();
  const auto local_rank = static_cast<std::size_t>(root.local_rank);
  const OutputSpec& output = spec.output;
  if (local_rank >= output.streams.size() || !output.streams[local_rank][1].to_console)
    return false;
  const bool shows_all_nodes = output.channel_fd || (output.gathers && end.world->node_rank == 0);
  return shows_all_nodes || root.node_rank == end.world->node_rank;
}

int run_job(const Options& options, const HostFacts& host) {
  Reporting reporting = reporting_of(options, host);
  if (const Result<ReportFiles> reports = report_files(options.reports, host); reports) {
    reporting.report_file = reports->json.value_or("");
    reporting.html_file = reports->html.value_or("");
  }
  const Result<Plan> planned = make_plan(options, host);
  if (!planned) return report_error(planned.error(), reporting);
  const Plan& plan = *planned;
  reporting.exit_codes = plan.exit_codes;
  reporting.report_file = plan.report_file.value_or("");
  reporting.html_file = plan.html_report_file.value_or("");
  reporting.placements = plan.agent.worker.placements;
  if (plan.dry_run) {
    std::fputs((*plan.dry_run == DryRun::Json ? plan_json(plan) : plan_text(plan)).c_str(), stdout);
    return 0;
  }
  if (plan.explain) std::fputs(origins_text(plan.origins).c_str(), stderr);
  const Log log = job_log(plan, options.invoked_as, "");
  for (const std::string& note : plan.notes) log.debug(note);
  for (const std::string& warning : plan.warnings) log.warning(warning);
  if (plan.cannot_start) {
    const Error error{ErrorCode::Spawn, plan.cannot_start->message};
    return report_early(not_started(plan), error, reporting);
  }
  const Result<int> code = agent::run_guarded([&plan, &host, &log, &reporting] {
    const agent::AgentEnd end = agent::run_agent(plan.agent, log);
    reporting.style.log_directory = end.log_directory;
    reporting.style.timeouts = end.timeouts;
    reporting.events = end.events;
    reporting.phase_times = end.phases;
    reporting.style.has_shown_stderr = has_shown_stderr(plan.agent, end);
    const int exit_code = report_end(end.outcome, reporting);
    const bool is_preempted = std::holds_alternative<Preempted>(end.outcome.ending);
    if (is_preempted && plan.requeues && end.was_coordinator)
      requeue(plan.agent.deadline->slurm_job, host, log);
    // A job succeeds without its console, but drun doctor only prints.
    const bool has_no_table = plan.is_doctor && end.has_lost_stdout && exit_code == 0;
    return has_no_table ? kSystemError : exit_code;
  });
  return code ? *code : report_error(code.error(), reporting);
}

}  // namespace drun
