#include "launcher/plan/doctor.h"

#include <cerrno>
#include <string>

#include "launcher/plan/programs.h"
#include "rendezvous/base/result.h"

namespace drun {
namespace {

constexpr int kProblemsFound = 1;  // the probe's exit code

std::vector<std::string> probe_words(const HostFacts& host) {
  std::vector<std::string> words{
      host.own_folder + "/drun-probe", "--drun-version=" + host.drun_version,
      "--cores=" + std::to_string(host.usable_cpus), "--gpus=" + std::to_string(host.gpus)};
  if (host.launched) words.emplace_back("--quiet");
  return words;
}

}  // namespace

std::vector<std::string> preflight_words(const HostFacts& host) {
  std::vector<std::string> words = probe_words(host);
  words.emplace_back("--preflight");
  return words;
}

std::optional<CannotStart> check_probe(const HostFacts& host) {
  const std::string path = host.own_folder + "/drun-probe";
  if (host.probe(path) == FileKind::Executable) return std::nullopt;
  return CannotStart{.status = {ENOENT},
                     .message = path + ", a part of drun, is missing; reinstall drun"};
}

Program doctor_program(const Options& options, const HostFacts& host) {
  Program program;
  program.argv = probe_words(host);
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

bool is_logged_by_doctor(std::string_view line) {
  return !line.ends_with(" failed: exit code " + std::to_string(kProblemsFound)) &&
         !line.ends_with(" stream=stdout reason=" + system_message(EPIPE));
}

}  // namespace drun
