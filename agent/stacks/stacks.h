// edge. Reads the stacks of this node's workers and the processes below them. Processes are stopped
// only while a debugger reads their stacks.
//
// Sources: py-spy for Python programs, gdb and eu-stack, if they are on PATH and ptrace(2) is
//          allowed; otherwise /proc. If a tool fails, the next one is used.
// Limits:  16 processes per worker, tools for 4 of them, 4 tools at a time. A tool that does not
//          finish in time is killed, and /proc is used instead.
// Owner:   the agent. Call stop() before workers are stopped, so that no tool is treated as a
//          leftover process.
// Thread:  the io_context's only. Callbacks come from the loop.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/stacks/stack_trace.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

// --- The tools that can read a process's stacks on this machine, best first

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

// --- The stacks of all workers

struct FoundStacks {
  std::vector<std::vector<ProcessStacks>> workers{};  // as requested; empty: has ended
  std::vector<std::string> notes{};                   // why no better source was used
};

class StackCollector {
 public:
  using OnDone = std::function<void(const FoundStacks&)>;

  // `environment`: "NAME=value" lines for the tools, including PATH; must outlive this.
  StackCollector(asio::io_context& io, std::span<const std::string> environment,
                 std::chrono::milliseconds limit = std::chrono::seconds(8));
  StackCollector(const StackCollector&) = delete;
  StackCollector& operator=(const StackCollector&) = delete;
  ~StackCollector();

  // `pids`: by local rank; 0: has ended. A call while stacks are read gets the same result.
  void collect(const std::vector<int>& pids, OnDone on_done);

  // Kills the tools. Pending requests are answered with the findings so far. Returns the tools'
  // process groups, which may take a moment to die.
  std::vector<int> stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace drun::agent
