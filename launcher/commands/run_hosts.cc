#include "launcher/commands/commands.h"

#include <cstdio>
#include <filesystem>
#include <string>

#include "agent/process/guardian.h"
#include "launcher/base/log.h"
#include "launcher/hosts/host_plan.h"
#include "launcher/plan/doctor.h"
#include "launcher/remote/remote_launcher.h"
#include "launcher/report/report.h"

namespace drun::hosts {
namespace {

namespace fs = std::filesystem;

std::string own_path() {
  std::error_code ec;
  return fs::read_symlink("/proc/self/exe", ec).string();
}

// Uses the shell's name for the directory: with links (/home, an automounter) the other machines
// may not have the path that the kernel reports.
HostFacts with_users_directory(HostFacts host) {
  const auto name = variable(host, "PWD");
  std::error_code ec;
  if (name && name->starts_with('/') && fs::equivalent(*name, ".", ec) && !ec)
    host.working_directory = *name;
  return host;
}

void write_reports(const LaunchEnd& end, const HostPlan& plan, const std::string& invoked_as) {
  const bool has_no_program = end.exit_code == 126 || end.exit_code == 127;
  const Error error{has_no_program ? ErrorCode::Spawn : ErrorCode::Unreachable,
                    end.text.substr(0, end.text.find_last_not_of('\n') + 1)};
  const Outcome not_run{.ending = NotRun{error}, .run_id = plan.run_id};
  if (!plan.report_file.empty()) {
    write_report(plan.report_file,
                 end.report.empty() ? report_for_file(plan.report_file, not_run, end.exit_code, {},
                                                      {.invoked_as = invoked_as})
                                    : end.report,
                 invoked_as);
  }
  if (!plan.html_report_file.empty())
    write_report(plan.html_report_file, html_report_of(end.events, not_run), invoked_as);
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
  if (options.dry_run) {
    const bool is_json = *options.dry_run == DryRun::Json;
    std::fputs((is_json ? host_plan_json(plan) : host_plan_text(plan)).c_str(), stdout);
    return 0;
  }
  if (options.explain) std::fputs(host_plan_text(plan).c_str(), stderr);
  LogStyle style{.invoked_as = options.invoked_as,
                 .level = options.log_level.value_or(LogLevel::Info)};
  if (options.doctor) style.is_wanted = is_logged_by_doctor;
  const Log log = console_log(style);
  for (const std::string& warning : plan.warnings) log.warning(warning);
  const Result<int> code = agent::run_guarded([&] {
    const LaunchEnd end = run_launcher(plan, host, log);
    write_reports(end, plan, options.invoked_as);
    std::fputs(end.text.c_str(), stderr);
    const bool has_no_table = options.doctor && end.has_lost_stdout && end.exit_code == 0;
    return has_no_table ? kSystemError : end.exit_code;
  });
  return code ? *code : refuse(options, code.error());
}

}  // namespace drun::hosts
