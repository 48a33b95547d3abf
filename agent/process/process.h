// edge. One running child process: watched by its pidfd, reaped once, signaled only through here.
//
// Owner:   Workers. Destroying it closes the pidfd and leaves the process alone.
// Thread:  the io_context's only.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "agent/process/spawn.h"
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

  int pid() const { return shown_pid_; }  // for display: stays after the end
  bool is_running() const { return pid_.has_value(); }
  // From on_end on; absent: the kernel did not tell.
  const std::optional<WorkerUsage>& usage() const { return usage_; }

  // To everyone in its process group, or to itself alone when it has left that group. Nothing after
  // the end: the number may be another's then.
  void signal_group(int signal);

  // If it has ended: reaps it and calls `on_end` before returning.
  void collect();

 private:
  void watch();
  void close_pidfd();

  std::optional<int> pid_;  // forgotten the instant it is reaped
  int shown_pid_;
  asio::posix::stream_descriptor pidfd_;
  OnEnd on_end_;
  std::optional<WorkerUsage> usage_;
  std::shared_ptr<char> alive_ = std::make_shared<char>();  // tells late handlers that it is gone
};

}  // namespace drun::agent
