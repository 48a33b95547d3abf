// core. Parses a process's files in /proc (proc(5)).
//
// Errors:  absent or empty if a text is invalid; never throws.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/process/descendants.h"
#include "agent/stacks/stack_trace.h"

namespace drun::agent {

// Clock ticks used by a process and its reaped children, from its stat file.
std::optional<std::uint64_t> parse_cpu_ticks(std::string_view stat);

// The text for a state letter: "running", "sleeping", "stopped" ... ...
std::string state_words(char state);

// The files of one thread. `kernel_stack` is only readable by root. `wchan` is "0" if the thread
// does not sleep or its place is hidden.
struct ThreadFiles {
  std::string comm{};
  std::string stat{};
  std::string wchan{};
  std::string syscall{};
  std::string kernel_stack{};
};
// "sleeping in futex_wait_queue (futex)". Then the kernel's frames, without those of kernel entry,
// if the thread does not sleep in a system call that can be interrupted, or in one into a driver.
ThreadStack thread_of(const ThreadFiles& files);

// The tree of each of `tops`, itself first; at most `most` processes per top. Leaves out processes
// outside these trees.
std::vector<std::vector<ProcessStat>> trees_below(std::span<const int> tops,
                                                  std::span<const ProcessStat> all,
                                                  std::size_t most);

// Why this process may not use ptrace(2) on others; empty: no reason known. `yama`: the text of
// ptrace_scope, if it exists; `status`: /proc/self/status.
std::string ptrace_objection(const std::optional<std::string>& yama, std::string_view status);

}  // namespace drun::agent
