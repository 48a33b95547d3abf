#include "launcher/doctor/doctor.h"

#include <cerrno>
#include <string>

#include "launcher/version.h"

namespace drun {
namespace {

constexpr int kProblemsFound = 1;  // the probe's exit code

// Why the job's own program cannot be started here; empty: it can, or there is none.
std::string program_problem(const Options& options, const HostFacts& host) {
  if (options.program.empty()) return "";
  Options job = options;
  job.doctor.reset();
  const Result<Program> program = plan_program(job, host);
  if (!program) return program.error().message;
  return program->cannot_start ? program->cannot_start->message : "";
}

}  // namespace

Options doctor_options(Options options) {
  options.nproc_per_node = WorkerCount(1);
  options.sources["--nproc-per-node"] = "drun doctor";
  if (!options.hosts.names_hosts()) {
    options.hosts.np.reset();
    options.hosts.map_by.reset();
  }
  options.max_restarts.reset();
  options.restart = {};
  options.exclude_after.reset();
  options.hang_timeout.reset();
  options.store = StoreHost::Agent;
  options.stdin_source = StdinSource::DevNull;
  options.pass_local_rank = options.virtual_local_rank = false;
  options.bind_to.reset();
  options.numa_binding.reset();
  options.bind_memory.reset();
  options.gpus_per_worker.reset();
  options.omp_threads.reset();
  options.wrap.reset();
  options.wrap_ranks.reset();
  options.output = OutputMode::Lines;
  options.redirects = options.tee = {};
  options.log_dir = "/dev/null";
  options.local_ranks_filter.reset();
  options.report.reset();
  options.events.reset();
  options.metrics.reset();
  options.exit_code = ExitCodeStyle::Drun;
  return options;
}

Program doctor_program(const Options& options, const HostFacts& host) {
  const std::string path = host.own_folder + "/drun-probe";
  Program program;
  program.argv = {path, std::string("--drun-version=") + kVersion,
                  "--cores=" + std::to_string(host.usable_cpus),
                  "--gpus=" + std::to_string(host.gpus)};
  if (options.doctor->is_json) program.argv.emplace_back("--json");
  if (options.is_checked_first) program.argv.emplace_back("--quiet");
  const std::string problem = program_problem(options, host);
  if (!problem.empty()) program.argv.push_back("--problem=" + problem);
  program.arguments_at = 1;
  if (host.probe(path) != FileKind::Executable)
    program.cannot_start = CannotStart{
        .status = {ENOENT},
        .message = "drun doctor needs " + path + ", which belongs to drun; install drun anew"};
  return program;
}

bool is_verdict(const Outcome& outcome) {
  const auto* const failed = std::get_if<WorkersFailed>(&outcome.ending);
  return failed != nullptr && !failed->failures.empty() &&
         failed->failures.front().status == ExitStatus(Exited{kProblemsFound});
}

bool is_about_verdict(std::string_view line) {
  return line.ends_with(" failed: exit code " + std::to_string(kProblemsFound));
}

}  // namespace drun
