// core. Parses the stacks of one process as printed by py-spy, gdb and eu-stack.
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
// `eu-stack`, with -m and -s or without.
std::vector<ThreadStack> parse_eu_stack(std::string_view text);

}  // namespace drun::agent
