// edge. One child process: started by one function, watched by its pidfd, reaped once.
//
// Owner:   Workers. Destroying a Process that still runs closes the pidfd and leaves the process
//          alone; whoever owns it has stopped it before.
// Thread:  the io_context's only. (PDEATHSIG fires when the *thread* that spawned ends: spawn from
//          a thread that lives as long as the agent.)
// Errors:  spawn says synchronously why a program cannot be executed.
#pragma once

#include <csignal>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/asio.h"
#include "rendezvous/failure.h"
#include "rendezvous/world.h"

namespace drun::agent {

// What to execute. Descriptors and `inherited` are borrowed: read during the call, not kept.
struct Command {
  std::vector<std::string> argv;  // argv[0] without a slash is looked up on the *worker's* PATH
  // "NAME=value" lines that all workers of a node share (to_lines); names in `environment` win.
  std::span<const std::string> inherited;
  std::vector<EnvironmentEntry> environment;
  // What becomes the worker's 0, 1 and 2. May be close-on-exec; may be one another's numbers.
  int stdin_fd = 0;
  int stdout_fd = 1;
  int stderr_fd = 2;
  std::string directory;  // empty: drun's own
};

// {"A", "1"} -> "A=1".
std::vector<std::string> to_lines(const std::vector<EnvironmentEntry>& entries);

struct Spawned {
  int pid = 0;
  int pidfd = -1;  // close-on-exec; the caller's
};

// Starts the command in a process group of its own, with an empty signal mask, default dispositions
// (but what the user had ignored when drun started stays ignored, SIGPIPE and SIGCHLD excepted) and
// SIGKILL as its parent-death signal. Descriptors above 2 that are not close-on-exec are inherited.
// A text file without #! is given to /bin/sh, as execvp does. NotStarted: nothing is left behind.
std::variant<Spawned, NotStarted> spawn(const Command& command);

class Process {
 public:
  using OnEnd = std::function<void(const ExitStatus&)>;

  // `on_end` is called once, from the io_context, never from inside a member function but
  // `collect`.
  Process(asio::io_context& io, Spawned spawned, OnEnd on_end);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();

  // For display and for looking it up; stays the same after the end.
  int pid() const { return shown_pid_; }
  bool is_running() const { return pid_.has_value(); }

  // To the process and everyone in its group. After the end: nothing (the number may be another's).
  void signal_group(int signal);

  // Reaps now if it has ended, and then calls `on_end` before returning.
  void collect();

 private:
  void watch();

  std::optional<int> pid_;  // forgotten the instant it is reaped
  int shown_pid_;
  asio::posix::stream_descriptor pidfd_;
  OnEnd on_end_;
};

}  // namespace drun::agent
