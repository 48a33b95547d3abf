// core. Parses the stacks of one process as printed by py-spy, gdb and eu-stack, and makes them
// comparable between workers.
//
// Form:    a frame is one text, "function (file.cc:12)" or "function (libc.so.6)", without
//          addresses, arguments and directories, so that it is the same on every rank. The
//          innermost is first.
// Limits:  64 threads, and 64 frames per thread; further ones are dropped.
// Errors:  none; lines that are not a thread or a frame are skipped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace drun::agent {

struct ThreadStack {
  std::string name{};  // set by the system or the program; empty: unknown
  std::vector<std::string> frames{};
  bool operator==(const ThreadStack&) const = default;
};

constexpr std::size_t kMostThreads = 64;
constexpr std::size_t kMostFrames = 64;

// `py-spy dump`.
std::vector<ThreadStack> parse_py_spy(std::string_view text);
// `thread apply all bt`.
std::vector<ThreadStack> parse_gdb(std::string_view text);
// `eu-stack`, with -m or without.
std::vector<ThreadStack> parse_eu_stack(std::string_view text);

// --- The processes of one worker as lines that can be compared with other workers': differences
// between ranks that do the same are removed.

struct ProcessStacks {
  std::string name{};    // the program, as the system calls it
  std::string state{};   // "sleeping"; shown if it is stopped or stuck
  std::string source{};  // "gdb"
  std::vector<ThreadStack> threads{};
  bool operator==(const ProcessStacks&) const = default;
};

// The main thread is first. Threads with equal frames are merged, with their names and a count.
// Those of CUDA and PyTorch that usually wait for work are last, on one line, if only their state
// in the kernel is known. Addresses, and numbers at the end of thread names, are removed. Processes
// keep their order, the worker's own first; equal ones after the first are only
// counted.
std::vector<std::string> stack_lines(const std::vector<ProcessStacks>& processes);

// "gdb", or "py-spy, /proc" if different tools were used for the worker's processes.
std::string sources_of(const std::vector<ProcessStacks>& processes);

}  // namespace drun::agent
