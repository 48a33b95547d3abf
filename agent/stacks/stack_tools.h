// edge: looks for programs. Which tools can show a process's stacks on this machine, best first.
// Thread: any.
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
  std::string objection{};           // why none of them can work; then `tools` is empty
  std::string missing_for_python{};  // "py-spy is not installed"
  std::string missing{};             // "gdb and eu-stack are not installed"
};

// `environment`: "NAME=value" lines. Only absolute folders of its PATH are looked into.
StackTools find_stack_tools(std::span<const std::string> environment);

std::vector<std::string> stack_tool_argv(const StackTool& tool, int pid);

// Why a tool that printed this shows no stack: its most telling line, without numbers. (core)
std::string tool_complaint(std::string_view output);

}  // namespace drun::agent
