// core. Parses a process's files in /proc (proc(5)).
//
// Errors:  absent or empty if a text is invalid; never throws.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "agent/stacks/stack_trace.h"

namespace drun::agent {

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

// Why this process may not use ptrace(2) on others; empty: no reason known. `yama`: the text of
// ptrace_scope, if it exists; `status`: /proc/self/status.
std::string ptrace_objection(const std::optional<std::string>& yama, std::string_view status);

}  // namespace drun::agent
