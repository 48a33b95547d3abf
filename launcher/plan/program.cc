#include "launcher/plan/program.h"

#include <cerrno>

#include "launcher/cli/help.h"
#include "launcher/plan/rendezvous.h"

namespace drun {
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
                                " is not executable; run chmod +x on it, or start it with its "
                                "interpreter, such as bash " +
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

}  // namespace drun
