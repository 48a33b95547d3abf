// edge. Reads the stacks of this node's workers and the processes below them. Processes are stopped
// only while a debugger reads their stacks.
//
// Sources: py-spy for Python programs, gdb and eu-stack, if they are on PATH and ptrace(2) is
//          allowed; otherwise /proc. If a tool fails, the next one is used.
// Limits:  16 processes per worker, tools for 4 of them, 4 tools at a time. A tool that does not
//          finish in time is killed, and /proc is used instead. PATH is searched in a thread, for 2
//          s: one of its directories can be on a network file system that hangs.
// Owner:   the agent. Call stop() before workers are stopped, so that no tool is treated as a
//          leftover process.
// Thread:  the io_context's only. Callbacks come from the loop.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/output/file_writer.h"
#include "agent/process/proc.h"
#include "agent/spawn/program_starter.h"
#include "agent/stacks/helper_program.h"
#include "agent/stacks/stack_trace.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

// --- The tools that can read a process's stacks on this machine, best first

struct StackTool {
  const char* name = "";  // "gdb"
  std::string path{};
  bool is_for_python = false;
  std::vector<ThreadStack> (*parse)(std::string_view) = nullptr;
};

struct StackTools {
  std::vector<StackTool> tools{};
  std::string objection{};           // why no tool can work; `tools` is then empty
  std::string missing_for_python{};  // "py-spy is not installed"
  std::string missing{};             // "gdb and eu-stack are not installed"
};

// `environment`: "NAME=value" lines. Only absolute directories of its PATH are searched. Blocks
// while their file systems do.
StackTools find_stack_tools(std::span<const std::string> environment);

std::vector<std::string> stack_tool_argv(const StackTool& tool, int pid);

// The most informative line of a failed tool's output, without numbers.
std::string tool_complaint(std::string_view output);

// --- The stacks of all workers

struct FoundStacks {
  std::vector<std::vector<ProcessStacks>> workers{};  // as requested; empty: has ended
  std::vector<std::string> notes{};                   // why no better source was used
};

class StackCollector {
 public:
  using OnDone = std::function<void(const FoundStacks&)>;

  // `environment`: "NAME=value" lines for the tools, including PATH; must outlive this.
  StackCollector(asio::io_context& io, std::span<const std::string> environment,
                 std::chrono::milliseconds limit = std::chrono::seconds(8));
  StackCollector(const StackCollector&) = delete;
  StackCollector& operator=(const StackCollector&) = delete;
  ~StackCollector();

  // `pids`: by local rank; 0: has ended. A call while stacks are read gets the same result.
  void collect(const std::vector<int>& pids, OnDone on_done);

  // Kills the tools. Pending requests are answered with the findings so far. Returns the tools'
  // process groups, which may take a moment to die.
  std::vector<int> stop();

 private:
  // One process, with the tools that are still to be tried.
  struct Job {
    std::size_t worker = 0;
    std::size_t process = 0;
    int pid = 0;
    std::vector<StackTool> tools;
  };
  using Place = std::list<std::unique_ptr<Helper>>::iterator;

  // The result of a search. Shared with its thread, which may outlive this.
  struct Search {
    StackTools tools;
    std::atomic<bool> is_done = false;
  };

  void search_tools();
  void begin(StackTools tools);
  void look_into_proc(const std::vector<int>& pids);
  void add_job(std::size_t worker, std::size_t process, const std::vector<ProcessStat>& tree);
  void start_some();
  void start(Job job);
  std::string out_of_time(const Job& job) const;
  void ended(Place place, Job job, const Helper::End& end);
  void resume(const Job& job) const;
  void finish();

  asio::io_context& io_;
  std::span<const std::string> environment_;
  std::chrono::milliseconds limit_;
  asio::steady_timer timer_;
  std::optional<ProgramStarter> starter_;  // from the first look on
  std::vector<int> pids_;
  std::unique_ptr<FileWriter> searcher_;  // from the first look on
  std::shared_ptr<Search> search_;        // the latest
  bool is_searching_ = false;
  StackTools tools_;
  FoundStacks found_;
  std::deque<Job> jobs_;
  std::list<std::unique_ptr<Helper>> helpers_;
  std::vector<std::unique_ptr<Helper>> late_;
  std::vector<OnDone> waiting_;
  std::chrono::steady_clock::time_point deadline_;
  bool is_looking_ = false;
};

}  // namespace drun::agent
