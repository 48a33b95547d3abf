#include "launcher/doctor/doctor.h"

#include <cerrno>
#include <string>

#include "launcher/programs/plan_programs.h"
#include "launcher/version.h"

namespace drun {
namespace {

constexpr int kProblemsFound = 1;  // the probe's exit code

std::vector<std::string> probe_words(const Options& options, const HostFacts& host) {
  std::vector<std::string> words{
      host.own_folder + "/drun-probe", std::string("--drun-version=") + kVersion,
      "--cores=" + std::to_string(host.usable_cpus), "--gpus=" + std::to_string(host.gpus)};
  if (options.is_checked_first) words.emplace_back("--quiet");
  return words;
}

}  // namespace

std::vector<std::string> preflight_words(const Options& options, const HostFacts& host) {
  std::vector<std::string> words = probe_words(options, host);
  words.emplace_back("--preflight");
  return words;
}

std::optional<CannotStart> check_probe(const HostFacts& host) {
  const std::string path = host.own_folder + "/drun-probe";
  if (host.probe(path) == FileKind::Executable) return std::nullopt;
  return CannotStart{.status = {ENOENT},
                     .message = path + ", which belongs to drun, is not there; install drun anew"};
}

Options doctor_options(Options options) {
  if (!options.hosts.names_hosts()) {  // with hosts they say which of them the job has
    options.nproc_per_node = WorkerCount(1);
    options.sources["--nproc-per-node"] = "drun doctor";
    options.hosts.np.reset();
    options.hosts.map_by.reset();
  }
  options.max_restarts.reset();
  options.restart = {};
  options.exclude_after.reset();
  options.preflight = false;
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
  Program program;
  program.argv = probe_words(options, host);
  if (options.doctor->is_json) program.argv.emplace_back("--json");
  const std::string problem = programs_problem(options, host);
  if (!problem.empty()) program.argv.push_back("--problem=" + problem);
  program.arguments_at = 1;
  program.cannot_start = check_probe(host);
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
