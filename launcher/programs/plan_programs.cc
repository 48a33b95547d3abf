#include "launcher/programs/plan_programs.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "launcher/hosts/exports.h"
#include "launcher/plan_program.h"
#include "launcher/plan_text.h"

namespace drun {
namespace {

using Json = nlohmann::ordered_json;

// The options of a job of this program alone.
Options alone(const Options& options, const ProgramOptions& program) {
  Options own = options;
  own.doctor.reset();
  own.module = program.module;
  own.no_python = program.no_python;
  own.program = program.program;
  own.program_arguments = program.arguments;
  return own;
}

std::string ranks_text(int first, int workers) {
  if (workers == 1) return "local rank " + std::to_string(first);
  return "local ranks " + std::to_string(first) + " to " + std::to_string(first + workers - 1);
}

}  // namespace

Result<std::vector<ProgramSpec>> plan_programs(const Options& options, const HostFacts& host,
                                               Remarks& remarks,
                                               std::optional<CannotStart>& cannot_start) {
  std::vector<ProgramSpec> specs;
  const Lookup here = [&host](std::string_view name) { return variable(host, name); };
  for (const ProgramOptions& program : options.programs) {
    Result<Program> planned = plan_program(alone(options, program), host);
    if (!planned) return planned.error();
    if (planned->cannot_start && !cannot_start) {
      cannot_start = std::move(planned->cannot_start);
      cannot_start->role = program.role;
      cannot_start->program = program.program;
    }
    auto exports = hosts::exported(program.exports, here, remarks);
    if (!exports) return with_context(exports.error(), program.program);
    specs.push_back({.role = program.role,
                     .workers = std::get<int>(*program.nproc_per_node),
                     .argv = std::move(planned->argv),
                     .arguments_at = planned->arguments_at,
                     .environment = *std::move(exports)});
  }
  return specs;
}

std::string programs_problem(const Options& options, const HostFacts& host) {
  const auto problem_of = [&host](const Options& job) -> std::string {
    const Result<Program> program = plan_program(job, host);
    if (!program) return program.error().message;
    return program->cannot_start ? program->cannot_start->message : "";
  };
  for (const ProgramOptions& program : options.programs) {
    const std::string problem = problem_of(alone(options, program));
    if (!problem.empty()) return problem;
  }
  if (!options.programs.empty() || options.program.empty()) return "";
  Options job = options;
  job.doctor.reset();
  return problem_of(job);
}

std::vector<int> gpus_of_workers(const Options& options, int workers) {
  if (options.doctor || (options.programs.empty() && !options.gpus_per_worker)) return {};
  std::vector<int> gpus;
  for (const ProgramOptions& program : options.programs)
    gpus.insert(gpus.end(), static_cast<std::size_t>(std::get<int>(*program.nproc_per_node)),
                program.gpus_per_worker.value_or(0));
  if (options.programs.empty())
    gpus.assign(static_cast<std::size_t>(workers), *options.gpus_per_worker);
  const bool has_any = std::any_of(gpus.begin(), gpus.end(), [](int each) { return each > 0; });
  return has_any ? gpus : std::vector<int>();
}

std::string programs_text(const std::vector<ProgramSpec>& programs) {
  std::string text;
  int first = 0;
  for (const ProgramSpec& program : programs) {
    text += (text.empty() ? "programs     " : "             ") +
            ranks_text(first, program.workers) + ", role " + program.role + ": " +
            shell_quoted(program.argv);
    std::string names;
    for (const auto& [name, value] : program.environment) names += " " + name;
    text += (names.empty() ? "" : "  (sets" + names + ")") + "\n";
    first += program.workers;
  }
  return text;
}

Json programs_json(const std::vector<ProgramSpec>& programs) {
  if (programs.empty()) return nullptr;
  Json list = Json::array();
  int first = 0;
  for (const ProgramSpec& program : programs) {
    Json variables = Json::object();
    for (const auto& [name, value] : program.environment) variables[name] = value;
    list.push_back(Json{{"role", program.role},
                        {"local_rank", first},
                        {"workers", program.workers},
                        {"command", program.argv},
                        {"variables", std::move(variables)}});
    first += program.workers;
  }
  return list;
}

}  // namespace drun
