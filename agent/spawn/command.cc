#include "agent/spawn/command.h"

#include <algorithm>

namespace drun::agent {
namespace {

std::string_view name_of(std::string_view line) { return line.substr(0, line.find('=')); }

// execve takes char* for historical reasons and changes nothing (execve(3p), rationale).
char* pointer_to(const std::string& text) { return const_cast<char*>(text.c_str()); }

}  // namespace

std::vector<std::string> to_lines(const std::vector<EnvironmentEntry>& entries) {
  std::vector<std::string> lines;
  lines.reserve(entries.size());
  for (const auto& [name, value] : entries) lines.push_back(name + "=" + value);
  return lines;
}

std::optional<std::string_view> find_variable(const Command& command, std::string_view name) {
  for (const auto& [own, value] : command.environment)
    if (own == name) return value;
  for (const std::string& line : command.inherited)
    if (name_of(line) == name && line.size() > name.size())
      return std::string_view(line).substr(name.size() + 1);
  return std::nullopt;
}

const std::string* users_value(const WorkerSpec& spec, std::string_view name) {
  for (const ProgramSpec& program : spec.programs)
    for (const auto& [own, value] : program.environment)
      if (own == name) return &value;
  for (const auto& [own, value] : spec.environment)
    if (own == name) return &value;
  return nullptr;
}

ExecImage::ExecImage(const Command& command, const std::string& path)
    : own_lines_(to_lines(command.environment)) {
  argv_.reserve(command.argv.size() + 1);
  for (const std::string& argument : command.argv) argv_.push_back(pointer_to(argument));
  argv_.push_back(nullptr);

  static const std::string kShell = "/bin/sh";
  shell_argv_ = {pointer_to(kShell), pointer_to(path)};
  shell_argv_.insert(shell_argv_.end(), argv_.begin() + 1, argv_.end());

  std::vector<std::string_view> own_names;
  own_names.reserve(own_lines_.size());
  for (const auto& entry : command.environment) own_names.push_back(entry.first);
  std::sort(own_names.begin(), own_names.end());
  environment_.reserve(command.inherited.size() + own_lines_.size() + 1);
  for (const std::string& line : command.inherited)
    if (!std::binary_search(own_names.begin(), own_names.end(), name_of(line)))
      environment_.push_back(pointer_to(line));
  for (const std::string& line : own_lines_) environment_.push_back(pointer_to(line));
  environment_.push_back(nullptr);
}

}  // namespace drun::agent
