// edge. Determines which tools can read a process's stacks on this machine, best first.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/stacks/stack_trace.h"

namespace drun::agent {

struct StackTool {
  const char* name = "";  // "gdb"
  std::string path{};
  bool is_for_python = false;
  std::vector<ThreadStack> (*parse)(std::string_view) = nullptr;
};

struct StackTools {
  std::vector<StackTool> tools{};
  std::string objection{};           // why no tool can work; `tools` is then empty
  std::string missing_for_python{};  // "py-spy is not installed"
  std::string missing{};             // "gdb and eu-stack are not installed"
};

// `environment`: "NAME=value" lines. Only absolute directories of its PATH are searched.
StackTools find_stack_tools(std::span<const std::string> environment);

std::vector<std::string> stack_tool_argv(const StackTool& tool, int pid);

// The most informative line of a failed tool's output, without numbers.
std::string tool_complaint(std::string_view output);

}  // namespace drun::agent
