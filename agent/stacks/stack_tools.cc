#include "agent/stacks/stack_tools.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>

#include "agent/stacks/proc_text.h"

namespace drun::agent {
namespace {

std::optional<std::string> small_file(const char* path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::string text(8192, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

std::string path_list(std::span<const std::string> environment) {
  for (const std::string& line : environment)
    if (line.starts_with("PATH=")) return line.substr(5);
  return "/bin:/usr/bin";
}

bool is_program(const std::string& path) {
  struct stat about {};
  return stat(path.c_str(), &about) == 0 && S_ISREG(about.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

// Empty: it is nowhere.
std::string find_on(std::string_view list, const char* name) {
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(':'), list.size());
    const std::string folder(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
    if (!folder.starts_with('/')) continue;
    if (std::string path = folder + "/" + name; is_program(path)) return path;
  }
  return "";
}

}  // namespace

StackTools find_stack_tools(std::span<const std::string> environment) {
  StackTools found;
  found.objection = ptrace_objection(small_file("/proc/sys/kernel/yama/ptrace_scope"),
                                     small_file("/proc/self/status").value_or(""));
  if (!found.objection.empty()) return found;
  const std::string list = path_list(environment);
  const std::string py_spy = find_on(list, "py-spy");
  if (py_spy.empty())
    found.missing_for_python = "py-spy is not installed";
  else
    found.tools.push_back({"py-spy", py_spy, true, parse_py_spy});
  std::string gdb = find_on(list, "gdb");
  std::string eu_stack = find_on(list, "eu-stack");
  // gdb reads the symbols of all libraries first: for seconds, if PyTorch is among them.
  if (!gdb.empty() && !eu_stack.empty())
    found.tools.push_back({"eu-stack", eu_stack, true, parse_eu_stack});
  if (!gdb.empty())
    found.tools.push_back({"gdb", std::move(gdb), false, parse_gdb});
  else if (!eu_stack.empty())
    found.tools.push_back({"eu-stack", std::move(eu_stack), false, parse_eu_stack});
  else
    found.missing = "gdb and eu-stack are not installed";
  return found;
}

std::vector<std::string> stack_tool_argv(const StackTool& tool, int pid) {
  const std::string number = std::to_string(pid);
  if (std::string_view(tool.name) == "py-spy") return {tool.path, "dump", "--pid", number};
  if (std::string_view(tool.name) == "eu-stack") return {tool.path, "-m", "-p", number};
  return {tool.path, "-nx",
          "-batch",  // no questions, no pages
          "-iex",    "set auto-load off",
          "-ex",     "thread apply all bt " + std::to_string(kMostFrames),
          "-p",      number};
}

std::string tool_complaint(std::string_view output) {
  std::string first;
  while (!output.empty()) {
    const std::size_t end = std::min(output.find('\n'), output.size());
    std::string line(output.substr(0, std::min<std::size_t>(end, 160)));
    output.remove_prefix(std::min(end + 1, output.size()));
    for (char& c : line)
      if (c >= '0' && c <= '9') c = '#';
    const bool is_telling = line.find("ptrace") != line.npos ||
                            line.find("ermitted") != line.npos || line.find("rror") != line.npos;
    if (is_telling) return line;
    if (first.empty()) first = line;
  }
  return first.empty() ? "it printed nothing" : first;
}

}  // namespace drun::agent
