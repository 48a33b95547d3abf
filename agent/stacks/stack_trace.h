// core. Stacks of one process as py-spy, gdb and eu-stack print them, read into one form.
//
// Shape:   a frame is one text, "function (file.cc:12)" or "function (libc.so.6)", without
//          addresses, arguments and folders: what is the same on every rank. The innermost is
//          first.
// Limits:  64 threads, 64 frames a thread; further ones are dropped.
// Errors:  none; what is not a thread or a frame is skipped: a text that is none gives no threads.
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace drun::agent {

struct ThreadStack {
  std::string name{};  // as the system or the program calls it; empty: not known
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
