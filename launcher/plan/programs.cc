#include "launcher/plan/programs.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include "launcher/base/words.h"
#include "launcher/cli/help.h"
#include "launcher/cli/option_values.h"
#include "launcher/plan/rendezvous.h"

namespace drun {
void set_variable(std::vector<EnvironmentEntry>& environment, EnvironmentEntry entry) {
  std::erase_if(environment, [&](const auto& each) { return each.first == entry.first; });
  environment.push_back(std::move(entry));
}

Result<std::vector<EnvironmentEntry>> exported(const std::vector<std::string>& exports,
                                               const Lookup& here, PlanNotes& notes) {
  std::vector<EnvironmentEntry> entries;
  for (const std::string& text : exports) {
    const std::size_t equals = text.find('=');
    if (equals == 0 || text.empty() || text.find('\0') != text.npos)
      return usage_error("-x " + text, "expected VAR or VAR=VALUE");
    if (equals != text.npos) {
      set_variable(entries, {text.substr(0, equals), text.substr(equals + 1)});
      continue;
    }
    const Result<std::vector<std::string>> names = parse_words(text);
    if (!names || names->empty()) return usage_error("-x " + text, "expected VAR or VAR=VALUE");
    for (const std::string& name : *names) {
      if (const std::optional<std::string> value = here(name))
        set_variable(entries, {name, *value});
      else
        notes.warnings.push_back("-x " + name + " is not passed on: it is not set on this machine");
    }
  }
  return entries;
}

namespace {

CannotStart cannot(int error_number, std::string message) {
  return CannotStart{.status = {error_number}, .message = std::move(message)};
}

bool is_file(FileKind kind) {
  return kind == FileKind::Executable || kind == FileKind::NotExecutable;
}

// Searches PATH as execvp does. NotExecutable if only files that cannot be executed match.
struct OnPath {
  FileKind kind = FileKind::Missing;
  std::string path;
};
OnPath look_on_path(const std::string& name, const HostFacts& host) {
  const std::string list = workers_variable(host, "PATH").value_or("/bin:/usr/bin");
  OnPath found;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(':', begin), list.size());
    const std::string folder = list.substr(begin, end - begin);
    const std::string path = folder.empty() ? "./" + name : folder + "/" + name;
    const FileKind kind = host.probe(path);
    if (kind == FileKind::Executable) return {.kind = kind, .path = path};
    if (kind == FileKind::NotExecutable && found.kind == FileKind::Missing)
      found = {.kind = kind, .path = path};
    begin = end + 1;
  }
  return found;
}

std::optional<std::string> find_python(const HostFacts& host) {
  if (const auto python = workers_variable(host, "PYTHON_EXEC"); python && !python->empty())
    return python;
  for (const char* home : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const auto folder = workers_variable(host, home);
    if (!folder || folder->empty()) continue;
    for (const char* name : {"/bin/python3", "/bin/python"}) {
      if (host.probe(*folder + name) == FileKind::Executable) return *folder + name;
    }
  }
  for (const char* name : {"python3", "python"}) {
    if (const OnPath found = look_on_path(name, host); found.kind == FileKind::Executable)
      return found.path;
  }
  return std::nullopt;
}

std::optional<CannotStart> check_executable(const std::string& program, const HostFacts& host) {
  const bool has_slash = program.find('/') != program.npos;
  const OnPath found = has_slash ? OnPath{.kind = host.probe(program), .path = program}
                                 : look_on_path(program, host);
  switch (found.kind) {
    case FileKind::Executable:
      return std::nullopt;
    case FileKind::Directory:
      return cannot(EACCES, found.path + " is a directory; give the path of a program");
    case FileKind::NotExecutable:
      return cannot(EACCES, found.path +
                                " is not executable by this user; check its mode (chmod +x), the "
                                "permissions of its directories, and whether its file system is "
                                "mounted noexec, or start it with its interpreter, such as bash " +
                                found.path);
    case FileKind::Missing:
      break;
  }
  if (has_slash) {
    return cannot(ENOENT, program + ": no such file" +
                              (program.starts_with('/') || host.working_directory.empty()
                                   ? ""
                                   : " in " + host.working_directory) +
                              " on this node; check the path");
  }
  if (is_file(host.probe("./" + program)))
    return cannot(ENOENT, program + " is not on PATH, but in this directory; write ./" + program);
  return cannot(ENOENT, program + " is not on PATH; write its path, such as ./" + program);
}

std::optional<CannotStart> check_script(const std::string& script, const HostFacts& host) {
  const FileKind kind = host.probe(script);
  if (is_file(kind)) return std::nullopt;
  if (kind == FileKind::Directory)
    return cannot(EACCES, script + " is a directory; give the path of a script");
  return check_executable(script.find('/') == script.npos ? "./" + script : script, host);
}

Program python_program(const Options& options, const HostFacts& host) {
  const std::optional<std::string> python = find_python(host);
  Program program;
  program.argv = {python.value_or("python3"), "-u"};
  if (options.module) program.argv.emplace_back("-m");
  program.argv.push_back(options.program);
  if (!python) {
    program.cannot_start = cannot(ENOENT, options.program +
                                              " requires Python, but there is no python3 on "
                                              "PATH; set PYTHON_EXEC to the path of one");
    return program;
  }
  if (const auto problem = check_executable(*python, host)) {
    program.cannot_start = problem;
    program.cannot_start->message = "PYTHON_EXEC: " + problem->message;
  } else if (!options.module) {
    program.cannot_start = check_script(options.program, host);
  }
  return program;
}

// Whether Python runs the program: with -m, for names in .py, and as torchrun for files that cannot
// be executed.
bool is_pythons(const Options& options, const HostFacts& host) {
  if (options.no_python) return false;
  if (options.module || options.run_path || options.program.ends_with(".py")) return true;
  return options.invoked_as == "torchrun" && host.probe(options.program) == FileKind::NotExecutable;
}

}  // namespace

Result<Program> plan_program(const Options& options, const HostFacts& host) {
  if (options.module && options.no_python)
    return usage_error("--module", "it requires Python and cannot be combined with --no-python");
  Program program;
  if (is_pythons(options, host)) {
    program = python_program(options, host);
  } else {
    program.argv = {options.program};
    program.cannot_start = check_executable(options.program, host);
    const std::string_view command = command_like(options.program);
    if (program.cannot_start && !command.empty() && options.invoked_as != "torchrun")
      program.cannot_start->message += "; did you mean drun " + std::string(command) + "?";
  }
  program.arguments_at = program.argv.size();
  program.argv.insert(program.argv.end(), options.program_arguments.begin(),
                      options.program_arguments.end());
  return program;
}

std::optional<CannotStart> check_wrap(const std::string& program, const HostFacts& host) {
  std::optional<CannotStart> problem = check_executable(program, host);
  if (problem) problem->message = "--wrap: " + problem->message;
  return problem;
}

namespace {

using Json = nlohmann::ordered_json;

// The options of a job with only this program.
Options alone(const Options& options, const ProgramOptions& program) {
  Options own = options;
  own.doctor.reset();
  own.module = program.module;
  own.no_python = program.no_python;
  own.program = program.program;
  own.program_arguments = program.arguments;
  return own;
}

}  // namespace

Result<std::vector<ProgramSpec>> plan_programs(const Options& options, const HostFacts& host,
                                               PlanNotes& notes,
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
    auto exports = exported(program.exports, here, notes);
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

Json variables_json(const std::vector<EnvironmentEntry>& variables) {
  Json json = Json::object();
  for (const auto& [name, value] : variables) json[name] = value;
  return json;
}

std::string local_ranks_text(int first, int count) {
  if (count == 1) return "local rank " + std::to_string(first);
  return "local ranks " + std::to_string(first) + " to " + std::to_string(first + count - 1);
}

std::string programs_text(const std::vector<ProgramSpec>& programs) {
  std::string text;
  int first = 0;
  for (const ProgramSpec& program : programs) {
    text += (text.empty() ? "programs     " : "             ") +
            local_ranks_text(first, program.workers) + ", role " + program.role + ": " +
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
    list.push_back(Json{{"role", program.role},
                        {"local_rank", first},
                        {"workers", program.workers},
                        {"command", program.argv},
                        {"variables", variables_json(program.environment)}});
    first += program.workers;
  }
  return list;
}

namespace {

Result<RankShare> own_share(const Options& options) {
  const int np = *options.hosts.np;
  const int nodes = options.nnodes.value_or(NodeRange{}).max;
  const std::string given = "-np " + std::to_string(np);
  if (options.has_node_range() || is_elastic(options))
    return usage_error(given,
                       "it is the total number of workers, but the number of nodes may change; use "
                       "--nproc-per-node");
  const auto per_node = options.hosts.map_by ? options.hosts.map_by->per_node : std::nullopt;
  if (per_node && np > static_cast<std::int64_t>(*per_node) * nodes)
    return usage_error(given, std::to_string(*per_node) + " on each of " + std::to_string(nodes) +
                                  " nodes are fewer workers; change --map-by or -np");
  // An invalid rank is rejected later, when the nodes are planned.
  const int node_rank = std::min(options.node_rank.value_or(0), nodes - 1);
  const RankShare share = share_of(np, nodes, node_rank, per_node);
  if (share.count == 0)
    return usage_error(given, "node " + std::to_string(node_rank) + " of " + std::to_string(nodes) +
                                  " has no worker; start more workers or use fewer nodes");
  return share;
}

// Counts the workers of several programs, each with its --nproc-per-node, on this node.
Result<void> count_here(Options& options, const HostFacts& host) {
  std::int64_t sum = 0;
  for (ProgramOptions& program : options.programs) {
    Options asked = options;
    asked.nproc_per_node = program.nproc_per_node;
    asked.gpus_per_worker = program.gpus_per_worker;
    const Result<int> count = plan_workers(asked, host);
    if (!count) return with_context(count.error(), program.program);
    program.nproc_per_node = WorkerCount(*count);
    sum += *count;
  }
  options.nproc_per_node = WorkerCount(static_cast<int>(sum));
  return {};
}

}  // namespace

std::vector<ProgramOptions> programs_of(const std::vector<ProgramOptions>& programs,
                                        RankShare share) {
  std::vector<ProgramOptions> own;
  std::int64_t begin = 0;
  for (const ProgramOptions& program : programs) {
    const std::int64_t end = begin + program.np.value_or(0);
    const std::int64_t from = std::max<std::int64_t>(begin, share.first);
    const std::int64_t to = std::min<std::int64_t>(end, share.first + std::int64_t{share.count});
    begin = end;
    if (from >= to) continue;
    own.push_back(program);
    own.back().np.reset();
    own.back().nproc_per_node = WorkerCount(static_cast<int>(to - from));
  }
  return own;
}

RankShare share_of(int np, int nodes, int node_rank, std::optional<int> per_node) {
  if (per_node) {
    const std::int64_t first = std::int64_t{*per_node} * node_rank;
    const std::int64_t left = std::max<std::int64_t>(np - first, 0);
    return {.first = static_cast<int>(std::min<std::int64_t>(first, np)),
            .count = static_cast<int>(std::min<std::int64_t>(*per_node, left))};
  }
  const int each = np / nodes;
  const int extra = np % nodes;
  return {.first = node_rank * each + std::min(node_rank, extra),
          .count = each + (node_rank < extra ? 1 : 0)};
}

Result<void> resolve_programs(Options& options, const HostFacts& host) {
  if (options.doctor) return {};  // one probe per node, whatever the job is
  if (!options.hosts.np) {
    if (options.programs.empty()) return {};
    return count_here(options, host);
  }
  const Result<RankShare> share = own_share(options);
  if (!share) return share.error();
  options.nproc_per_node = WorkerCount(share->count);
  options.programs = programs_of(options.programs, *share);
  return {};
}

Result<std::vector<RoleShare>> roles_of(const std::vector<ProgramOptions>& programs) {
  std::vector<RoleShare> roles;
  for (const ProgramOptions& program : programs) {
    const int workers = std::get<int>(*program.nproc_per_node);
    if (!roles.empty() && roles.back().role == program.role)
      roles.back().workers += workers;
    else
      roles.push_back({.role = program.role, .workers = workers});
  }
  if (roles.size() <= kMostRoleShares) return roles;
  return Error{ErrorCode::Usage, "this node's programs have " + std::to_string(roles.size()) +
                                     " consecutive roles; at most " +
                                     std::to_string(kMostRoleShares) +
                                     " are allowed; give adjacent programs the same --role"};
}

Result<std::vector<ProgramOptions>> with_values(std::vector<ProgramOptions> programs,
                                                const HostFacts& host, PlanNotes& notes) {
  const Lookup here = [&host](std::string_view name) { return variable(host, name); };
  for (ProgramOptions& program : programs) {
    const auto entries = exported(std::exchange(program.exports, {}), here, notes);
    if (!entries) return with_context(entries.error(), program.program);
    for (const auto& [name, value] : *entries) program.exports.push_back(name + "=" + value);
  }
  return programs;
}

}  // namespace drun
