// For any output of gdb, py-spy and eu-stack, and any kernel files of a process, threads and frames
// are within their limits and are single lines.
//
// Input: the first byte selects the tool that printed the rest.
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "agent/process/descendants.h"
#include "agent/stacks/proc_text.h"
#include "agent/stacks/stack_trace.h"
#include "agent/stacks/stacks.h"

namespace {

using namespace drun::agent;

constexpr std::size_t kMostFrameBytes = 160;

void require(bool is_true) {
  if (!is_true) std::abort();
}

bool is_line(std::string_view text) { return text.find('\n') == text.npos; }

void check(const std::vector<ThreadStack>& threads) {
  require(threads.size() <= kMostThreads);
  for (const ThreadStack& thread : threads) {
    require(!thread.frames.empty() && thread.frames.size() <= kMostFrames);
    require(is_line(thread.name));
    for (const std::string& frame : thread.frames)
      require(!frame.empty() && frame.size() <= kMostFrameBytes && is_line(frame));
  }
  const ProcessStacks process{
      .name = "python", .state = "sleeping", .source = "gdb", .threads = threads};
  for (const std::string& line : stack_lines({process, process})) require(is_line(line));
}

// Returns the text up to the next zero byte.
std::string next_text(std::string_view& rest) {
  const std::size_t end = std::min(rest.find('\0'), rest.size());
  std::string text(rest.substr(0, end));
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return text;
}

void check_proc(std::string_view rest) {
  ThreadFiles files;
  for (std::string* file :
       {&files.comm, &files.stat, &files.wchan, &files.syscall, &files.kernel_stack})
    *file = next_text(rest);
  static_cast<void>(ptrace_objection(files.comm, files.stat));
  const ThreadStack thread = thread_of(files);
  require(!thread.frames.empty() && thread.frames.size() <= kMostFrames);
  require(is_line(thread.name));
  for (const std::string& frame : thread.frames) require(is_line(frame));
  ProcessStat stat;
  if (!parse_stat(files.stat, stat)) require(stat == ProcessStat{});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      check(parse_gdb(text));
      break;
    case 1:
      check(parse_py_spy(text));
      break;
    case 2:
      check(parse_eu_stack(text));
      break;
    default:
      check_proc(text);
  }
  const std::string complaint = tool_complaint(text);
  require(!complaint.empty() && complaint.size() <= kMostFrameBytes && is_line(complaint));
  return 0;
}
