// edge. One running child process: watched by its pidfd, reaped once, signaled only through here.
//
// Owner:   Workers. Destroying it closes the pidfd and leaves the process alone.
// Thread:  the io_context's only.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "agent/spawn/spawn.h"
#include "agent/spec.h"
#include "rendezvous/job/outcome.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

class Process {
 public:
  using OnEnd = std::function<void(const ExitStatus&)>;

  // Takes the pidfd. `on_end` is called exactly once, by the io_context or by `collect`.
  Process(asio::io_context& io, Spawned spawned, OnEnd on_end);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();

  int pid() const { return shown_pid_; }  // for display; kept after the end
  bool is_running() const { return pid_.has_value(); }
  // Available from on_end on; absent if the kernel did not report it.
  const std::optional<WorkerUsage>& usage() const { return usage_; }

  // Signals its process group, or only the process if it has left that group. No effect after the
  // end, when the number may belong to another process.
  void signal_group(int signal);

  // If it has ended, reaps it and calls `on_end` before returning.
  void collect();

 private:
  void watch();
  void close_pidfd();

  std::optional<int> pid_;  // reset as soon as it is reaped
  int shown_pid_;
  asio::posix::stream_descriptor pidfd_;
  OnEnd on_end_;
  std::optional<WorkerUsage> usage_;
  std::shared_ptr<char> alive_ = std::make_shared<char>();  // expired: this object was destroyed
};

}  // namespace drun::agent
