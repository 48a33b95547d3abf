// edge. Looks at this node's workers and what runs below them: what each thread does, without
// stopping anything for longer than a debugger takes to read its stack.
//
// Sources: py-spy for Python programs, gdb, eu-stack, as far as they are on PATH and ptrace(2) is
//          allowed; else /proc. A tool that fails gives way to the next.
// Limits:  16 processes per worker, tools for 4 of them, 4 tools at a time. A tool that has not
//          answered in time is killed, and /proc is used instead.
// Owner:   the agent; stop() before workers are stopped, so that no tool is taken for theirs.
// Thread:  the io_context's only. Answers come from the loop.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "agent/stacks/stack_lines.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

struct FoundStacks {
  std::vector<std::vector<ProcessStacks>> workers{};  // as asked; empty: it has ended
  std::vector<std::string> notes{};                   // why there is nothing better
};

class StackCollector {
 public:
  using OnDone = std::function<void(const FoundStacks&)>;

  // `environment`: "NAME=value" lines of the tools, PATH among them; must outlive this.
  StackCollector(asio::io_context& io, std::span<const std::string> environment,
                 std::chrono::milliseconds limit = std::chrono::seconds(8));
  StackCollector(const StackCollector&) = delete;
  StackCollector& operator=(const StackCollector&) = delete;
  ~StackCollector();

  // By local rank; 0: has ended. A call during a look gets the same answer.
  void collect(const std::vector<int>& pids, OnDone on_done);

  // Kills the tools. Pending requests are answered with the findings so far. Returns the tools'
  // process groups, which may take a moment to die.
  std::vector<int> stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace drun::agent
