// core. Reads facts about a process from the texts of its files in /proc.
//
// Errors:  absent or empty for a text that is not of that kind; never throws.
// Source:  proc(5).   Thread: any.
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

// stat: clock ticks that it, and those of its children that it has reaped, have used.
std::optional<std::uint64_t> parse_cpu_ticks(std::string_view stat);

// stat's letter in words: "running", "sleeping", "stopped" ...
std::string state_words(char state);

// One thread out of its files. `kernel_stack` is root's only, `wchan` "0" when it does not sleep or
// may not be seen.
struct ThreadFiles {
  std::string comm{};
  std::string stat{};
  std::string wchan{};
  std::string syscall{};
  std::string kernel_stack{};
};
// "sleeping in futex_wait_queue (futex)", then the kernel's frames.
ThreadStack thread_of(const ThreadFiles& files);

// The tree of each of `tops`, itself first; at most `most` processes per top. Leaves out processes
// outside these trees.
std::vector<std::vector<ProcessStat>> trees_below(std::span<const int> tops,
                                                  std::span<const ProcessStat> all,
                                                  std::size_t most);

// Why this process may not look into others by ptrace(2); empty: nothing is known to forbid it.
// `yama`: the text of ptrace_scope, absent where there is none; `status`: /proc/self/status.
std::string ptrace_objection(const std::optional<std::string>& yama, std::string_view status);

}  // namespace drun::agent
