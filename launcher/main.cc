// Command line -> plan -> agent -> outcome -> words and an exit code. The one catch of the program
// is here.

#include <cstdio>
#include <exception>
#include <string>
#include <variant>
#include <vector>

#include "agent/agent.h"
#include "agent/guardian.h"
#include "launcher/exit_code.h"
#include "launcher/host.h"
#include "launcher/log.h"
#include "launcher/options.h"
#include "launcher/plan.h"
#include "launcher/plan_text.h"
#include "launcher/report.h"
#include "launcher/report_json.h"
#include "launcher/serve_store.h"
#include "rendezvous/overloaded.h"

namespace drun {
namespace {

int fail(const std::string& invoked_as, const Error& error, ExitCodeStyle style) {
  std::fputs(error_text(invoked_as, error).c_str(), stderr);
  return exit_code(error, style);
}

// What is printed at the end, on every node; gives the exit code.
int report(const Plan& plan, const Options& options, const HostFacts& host,
           const agent::AgentEnd& end, const Log& log) {
  const int code = exit_code(end.outcome, plan.exit_codes);
  std::string report_file = plan.report_file.value_or("");
  if (!report_file.empty()) {
    if (Result<void> written = write_file(report_file, report_json(end.outcome, code)); !written) {
      log.error(written.error().message);
      report_file.clear();
    }
  }
  const ReportStyle style{.invoked_as = options.invoked_as,
                          .has_colour = host.has_terminal && !variable(host, "NO_COLOR"),
                          .columns = host.columns,
                          .utc_offset = host.utc_offset,
                          .log_directory = end.log_directory,
                          .report_file = report_file};
  std::fputs(report_text(end.outcome, style).c_str(), stderr);
  return code;
}

int run_job(const Options& options, const HostFacts& host) {
  const Result<Plan> planned = make_plan(options, host);
  const ExitCodeStyle style =
      planned ? planned->exit_codes : options.exit_code.value_or(ExitCodeStyle::Drun);
  if (!planned) return fail(options.invoked_as, planned.error(), style);
  const Plan& plan = *planned;
  if (plan.dry_run) {
    std::fputs((*plan.dry_run == DryRun::Json ? plan_json(plan) : plan_text(plan)).c_str(), stdout);
    return 0;
  }
  const JoinSpec& join = plan.agent.join;
  const Log log = console_log(
      {.invoked_as = options.invoked_as,
       .level = plan.log_level,
       .node_rank = join.node_count > 1 ? std::optional(join.node_rank) : std::nullopt});
  for (const std::string& note : plan.notes) log.debug(note);
  for (const std::string& warning : plan.warnings) log.warning(warning);
  if (plan.cannot_start) {
    std::fputs(
        error_text(options.invoked_as, Error{ErrorCode::Spawn, plan.cannot_start->message}).c_str(),
        stderr);
    return style == ExitCodeStyle::Torchrun ? 1 : exit_code(ExitStatus(plan.cannot_start->status));
  }
  const Result<int> code = agent::run_guarded(
      [&] { return report(plan, options, host, agent::run_agent(plan.agent, log), log); });
  return code ? *code : fail(options.invoked_as, code.error(), style);
}

int run(const std::vector<std::string>& argv) {
  const HostFacts host = look_at_host();
  const Result<Command> command =
      parse_command_line(argv, [&host](std::string_view name) { return variable(host, name); });
  if (!command) return fail("drun", command.error(), ExitCodeStyle::Drun);
  return std::visit(Overloaded{
                        [](const ShowText& show) {
                          std::fputs(show.text.c_str(), show.exit_code == 0 ? stdout : stderr);
                          return show.exit_code;
                        },
                        [](const StoreCommand& store) { return serve_store(store); },
                        [&host](const Options& options) { return run_job(options, host); },
                    },
                    *command);
}

}  // namespace
}  // namespace drun

int main(int argc, char** argv) {
  try {
    return drun::run(std::vector<std::string>(argv, argv + argc));
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "drun: internal error: %s\n", exception.what());
    return drun::kSystemError;
  }
}
