// core. The processes of one worker as lines that can be compared with other workers': differences
// between ranks that do the same are removed.
#pragma once

#include <string>
#include <vector>

#include "agent/stacks/stack_trace.h"

namespace drun::agent {

struct ProcessStacks {
  std::string name{};    // the program, as the system calls it
  std::string state{};   // "sleeping"; shown if it is stopped or stuck
  std::string source{};  // "gdb"
  std::vector<ThreadStack> threads{};
  bool operator==(const ProcessStacks&) const = default;
};

// Equal threads are merged, with a count. Addresses, and numbers at the end of thread names, are
// removed. Processes keep their order, the worker's own first; equal ones after the first are only
// counted.
std::vector<std::string> stack_lines(const std::vector<ProcessStacks>& processes);

// "gdb", or "py-spy, /proc" if different tools were used for the worker's processes.
std::string sources_of(const std::vector<ProcessStacks>& processes);

}  // namespace drun::agent
