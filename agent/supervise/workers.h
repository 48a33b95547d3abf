// edge. The workers of one node, round after round: starts, watches and stops them, and cleans up
// what they leave running. The state machine in worker_group.h decides what happens when.
//
// A round lasts from start() to on_all_gone(); the next start() may be called from on_all_gone() at
// the earliest. The callbacks of a round come in this order: on_all_started, on_worker_failed (any
// number) or on_all_succeeded, on_waiting, on_all_gone. on_all_started() and on_all_gone() are
// called exactly once per start(), also if nothing could be started; on_all_gone() once more if
// kept processes are stopped.
//
// A failure is an unsuccessful exit that was observed before the first stop signal was sent. All
// workers that have exited by then are reaped before the signal is sent, so that they count as
// well.
//
// Workers is the only class that reaps children of this process while a round runs. It may be
// destroyed between rounds only, and not from a callback. Callbacks come from the io_context, never
// from start(), stop() or kill_now(). Between rounds nothing keeps the io_context running.
#pragma once

#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/process/command.h"
#include "agent/process/leftovers.h"
#include "agent/process/warm_starter.h"
#include "agent/spec.h"
#include "rendezvous/base/log.h"
#include "rendezvous/job/outcome.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

struct WorkersSpec {
  // One deadline for all processes of the round, from the first stop signal to SIGKILL. 0: kill at
  // once. After success it applies as LeftoverPolicy says.
  std::chrono::milliseconds shutdown_timeout{std::chrono::seconds(30)};
  LeftoverPolicy leftovers = LeftoverPolicy::Wait;
  // From SIGKILL until the processes that still exist count as unkillable.
  std::chrono::milliseconds unkillable_timeout{std::chrono::seconds(30)};
  // Every child of this process is the job's (the process becomes a child subreaper). False when
  // several agents share one process, as tests do: then only the workers' groups are stopped.
  bool adopts_orphans = true;
};

struct WorkerEnd {
  int local_rank = 0;  // its index in start()'s commands
  int pid = 0;         // 0: NotStarted
  ExitStatus status;
  std::chrono::steady_clock::time_point seen;  // when its pidfd reported the end
  WallTime time;                               // the same moment, for display
  bool stopped_by_us = false;                  // it ended after our first stop signal
  bool out_of_memory = false;                  // killed by the kernel's out-of-memory killer
  std::string message;  // why nothing was executed, when it was not the program's fault
  std::optional<WorkerUsage> usage{};
  bool operator==(const WorkerEnd&) const = default;
};

class Workers {
 public:
  struct Listener {
    virtual ~Listener() = default;
    // The commands' descriptors are no longer needed. `pids` has the pid of each worker by local
    // rank, also of those that have exited by now; 0: it was not started. After a failure or a stop
    // some may still wait for their exec.
    virtual void on_all_started(const std::vector<int>& /*pids*/) {}
    // The first own failure at once, and later ones (only those that ended before our stop).
    virtual void on_worker_failed(const WorkerEnd& end) = 0;
    // Every end of a worker that was started, for observers; from within other calls, too.
    virtual void on_worker_ended(const WorkerEnd& /*end*/) {}
    // Every worker returned 0. Leftover processes may still be running.
    virtual void on_all_succeeded() = 0;
    // A second after success: processes that the round waits for, for `time_left` at most.
    virtual void on_waiting(const LeftoverList& /*leftovers*/,
                            std::chrono::milliseconds /*time_left*/) {}
    // Nothing of this round is running any more, apart from kept and unkillable processes.
    virtual void on_all_gone(const Leftovers& leftovers) = 0;
  };

  Workers(asio::io_context& io, Log log, WorkersSpec spec, Listener& listener);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers();

  // One worker per command, at least one; all with the same `inherited`. Returns when the first few
  // exist, without waiting for any exec. If one cannot be started, the rest are not tried and the
  // running ones are stopped. The commands' descriptors must stay open until on_all_started; what
  // else they borrow may go when it returns.
  // `warm` starts the workers that it can (null: none), and must outlive the round; it has no
  // effect without adopts_orphans.
  void start(std::vector<Command> commands, WarmStarter* warm = nullptr);

  // Sends `signal` and SIGCONT to every process of the round, and SIGKILL at the deadline. Also
  // stops kept processes: then on_all_gone() is called again. Has no effect if nothing is running,
  // or after an earlier stop of the round.
  void stop(int signal = SIGTERM);
  // The workers get `signal`, and are stopped after `time` if they have not exited by then.
  void stop_after_notice(int signal, std::chrono::milliseconds time);
  // SIGKILL to all, now.
  void kill_now();
  // True from an on_all_gone() with kept processes until they are stopped or the next start().
  bool has_kept() const;
  // USR1, USR2, CONT ...: to every worker's group; changes nothing else.
  void pass_on(int signal);

  // To the process group of that one, if it still runs.
  void signal_worker(int local_rank, int signal);

  // A tool of the agent's own that was told to end, by its process group: the round waits for it,
  // but it is not reported as a leftover process. For this round only.
  void disregard_group(int group);

  // This child is no part of any round: it is neither signalled nor waited for. 0: there is none.
  void spare(int pid);
  // It has been reaped.
  void spared_ended();

  // Pids by local rank: of running workers, 0 for the others.
  std::vector<int> pids() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace drun::agent
