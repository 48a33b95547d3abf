#include "launcher/commands/run_hosts.h"

#include <cstdio>
#include <filesystem>
#include <string>

#include "agent/process/guardian.h"
#include "launcher/base/log.h"
#include "launcher/plan/host_plan.h"
#include "launcher/plan/host_plan_text.h"
#include "launcher/remote/remote_launcher.h"
#include "launcher/report/exit_code.h"
#include "launcher/report/report.h"
#include "launcher/report/report_junit.h"

namespace drun::hosts {
namespace {

namespace fs = std::filesystem;

std::string own_path() {
  std::error_code ec;
  return fs::read_symlink("/proc/self/exe", ec).string();
}

// As the user's shell calls it: behind a link (/home, an automounter) the other machines know that
// name, and may not know the kernel's.
HostFacts with_users_directory(HostFacts host) {
  const auto name = variable(host, "PWD");
  std::error_code ec;
  if (name && name->starts_with('/') && fs::equivalent(*name, ".", ec) && !ec)
    host.working_directory = *name;
  return host;
}

void write_report(const LaunchEnd& end, const HostPlan& plan, const std::string& invoked_as) {
  if (plan.report_file.empty()) return;
  std::string text = end.report;
  if (text.empty()) {
    const Error error{ErrorCode::Unreachable,
                      end.text.substr(0, end.text.find_last_not_of('\n') + 1)};
    const Outcome outcome{.ending = NotRun{error}, .run_id = plan.run_id};
    text =
        report_for_file(plan.report_file, outcome, end.exit_code, {}, {.invoked_as = invoked_as});
  }
  const Result<void> written = write_file(plan.report_file, text);
  if (!written) std::fputs(error_text(invoked_as, written.error()).c_str(), stderr);
}

int refuse(const Options& options, const Error& error) {
  std::fputs(error_text(options.invoked_as, error).c_str(), stderr);
  return exit_code(error, options.exit_code.value_or(ExitCodeStyle::Drun));
}

}  // namespace

int run_hosts(const Options& options, const HostFacts& facts) {
  const HostFacts host = with_users_directory(facts);
  const Result<HostPlan> planned = make_host_plan(options, host, own_path());
  if (!planned) return refuse(options, planned.error());
  const HostPlan& plan = *planned;
  if (plan.dry_run) {
    const bool is_json = *plan.dry_run == DryRun::Json;
    std::fputs((is_json ? host_plan_json(plan) : host_plan_text(plan)).c_str(), stdout);
    return 0;
  }
  if (plan.explain) std::fputs(host_plan_text(plan).c_str(), stderr);
  const Log log = console_log(
      {.invoked_as = options.invoked_as, .level = plan.log_level, .node_rank = std::nullopt});
  for (const std::string& warning : plan.warnings) log.warning(warning);
  const StarterStyle style{.invoked_as = options.invoked_as,
                           .columns = host.columns,
                           .has_colour = host.has_terminal && !variable(host, "NO_COLOR"),
                           .utc_offset_s = static_cast<long>(host.utc_offset.count())};
  const Result<int> code = agent::run_guarded([&] {
    const LaunchEnd end = run_starter(plan, host.environment, style, log);
    write_report(end, plan, options.invoked_as);
    std::fputs(end.text.c_str(), stderr);
    return end.exit_code;
  });
  return code ? *code : refuse(options, code.error());
}

}  // namespace drun::hosts
