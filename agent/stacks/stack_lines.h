// core. The processes of one worker as the lines that are compared with other workers': what
// differs between ranks though they do the same is taken away.
//
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <string>
#include <vector>

#include "agent/stacks/stack_trace.h"

namespace drun::agent {

struct ProcessStacks {
  std::string name{};    // the program, as the system calls it
  std::string state{};   // "sleeping"; shown for what is stopped or stuck
  std::string source{};  // "gdb"
  std::vector<ThreadStack> threads{};
  bool operator==(const ProcessStacks&) const = default;
};

// Equal threads become one with a count. Addresses and the numbers at the end of threads' names go.
// Processes keep their order, the worker's own first; of equal ones but the first only the count.
std::vector<std::string> stack_lines(const std::vector<ProcessStacks>& processes);

// "gdb", or "py-spy, /proc" of a worker whose processes were looked at in different ways.
std::string sources_of(const std::vector<ProcessStacks>& processes);

}  // namespace drun::agent
