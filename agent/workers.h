// edge. The workers of one node, round after round: starts them, watches them, stops them, and
// leaves nothing of them behind. What to do when is decided by the gang machine (gang.h).
//
// Shape:   start() .. on_all_gone() is one round; the next start() comes after it (from inside
//          on_all_gone at the earliest).
// Order:   on_all_started , on_worker_failed* , on_all_succeeded? , on_all_gone. Each failure once;
//          never both kinds; on_all_started and on_all_gone exactly once per start(), also when
//          nothing could be started.
// Failure: what ended badly before our first stop signal was sent. Whoever is found ended when the
//          first failure is seen is asked for his own status before anybody is signalled; whoever
//          ends later was stopped by us, whatever his status, and is not reported.
// Owner:   Agent. Destroyed between rounds only, and not from inside a callback.
// Thread:  the io_context's only. Callbacks come from the io_context, never from inside start(),
//          stop() or kill_now(). Between rounds nothing keeps the io_context running.
#pragma once

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "agent/command.h"
#include "agent/orphans.h"
#include "rendezvous/asio.h"
#include "rendezvous/failure.h"
#include "rendezvous/log.h"

namespace drun::agent {

struct WorkersSpec {
  // One shared deadline from the first stop signal to SIGKILL, for failures too. 0: kill at once.
  std::chrono::milliseconds shutdown_timeout{std::chrono::seconds(30)};
  // What workers leave running when all of them have ended has so long to end by itself; then TERM,
  // so long again, KILL.
  std::chrono::milliseconds settle_timeout{100};
  std::chrono::milliseconds leftover_timeout{500};
  // After SIGKILL: how long to wait for processes stuck in the kernel before going on without them.
  std::chrono::milliseconds unkillable_timeout{std::chrono::seconds(5)};
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
  bool operator==(const WorkerEnd&) const = default;
};

class Workers {
 public:
  struct Listener {
    virtual ~Listener() = default;
    // The commands' descriptors are no longer needed. Every worker that will run has its pid, but
    // some may still wait for their exec when others have failed or have to stop.
    virtual void on_all_started() {}
    // The first own failure at once, and later ones (only those that ended before our stop).
    virtual void on_worker_failed(const WorkerEnd& end) = 0;
    // Every worker returned 0; leftovers are being removed, or there are none.
    virtual void on_all_succeeded() = 0;
    // Nothing of this round runs any more (but `unkillable`, if any).
    virtual void on_all_gone(const Leftovers& leftovers) = 0;
  };

  Workers(asio::io_context& io, Log log, WorkersSpec spec, Listener& listener);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers();

  // One worker a command, at least one; all with the same `inherited`. Returns when the first few
  // exist, without waiting for any exec. When one cannot be started, no more are begun and those
  // running are stopped. The commands' descriptors must stay open until on_all_started; what else
  // they borrow may go when it returns.
  void start(std::vector<Command> commands);

  // `signal` and CONT to every group and every descendant, then KILL at the deadline. Nothing when
  // no round runs; only the first stop of a round counts.
  void stop(int signal = SIGTERM);
  // KILL to all, now.
  void kill_now();
  // USR1, USR2, CONT ...: to every worker's group; changes nothing else.
  void pass_on(int signal);

  // A child of this process that is no worker's, and was told to end: it is waited for with them,
  // and is nothing that they left behind. Of this round only.
  void disregard_group(int group);

  // Pids by local rank: of running workers, 0 for the others.
  std::vector<int> pids() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace drun::agent
