// edge. The workers of one node in successive rounds: starts, monitors and stops them, and cleans
// up leftover processes. All decisions are made by the state machine in worker_group.h.
//
// A round lasts from start() to on_all_gone(); the next start() may be called from on_all_gone() at
// the earliest. The callbacks of a round are called in this order: on_all_started, on_worker_failed
// (any number of times) or on_all_succeeded, on_waiting, on_all_gone. on_all_started() and
// on_all_gone() are called exactly once per start(), even if nothing could be started.
// on_all_gone() is called once more if kept processes are stopped.
//
// A failure is an unsuccessful exit that was observed before the first stop signal was sent. All
// workers that have exited by then are reaped before the signal is sent, so that they count too.
//
// All children of this process belong to the job: it becomes a child subreaper, and while a round
// runs, no other class reaps them. There is one Workers in a process, which may only be destroyed
// between rounds, and not from a callback. Callbacks are called from the io_context, never from
// within start(), stop() or kill_now(). Between rounds nothing keeps the io_context running.
#pragma once

#include <chrono>
#include <csignal>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/process/kernel_reports.h"
#include "agent/process/leftovers.h"
#include "agent/process/process.h"
#include "agent/spawn/child_descriptors.h"
#include "agent/spawn/command.h"
#include "agent/spawn/worker_starter.h"
#include "agent/spec.h"
#include "agent/workers/worker_group.h"
#include "rendezvous/base/log.h"
#include "rendezvous/job/outcome.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/net/deadline_timer.h"

namespace drun::agent {

struct WorkersSpec {
  // Time for all processes of the round, from the first stop signal to SIGKILL. 0: kill at once.
  // After success, LeftoverPolicy determines whether it applies.
  std::chrono::milliseconds shutdown_timeout{std::chrono::seconds(30)};
  LeftoverPolicy leftovers = LeftoverPolicy::Wait;
  // Time from SIGKILL until remaining processes count as unkillable.
  std::chrono::milliseconds unkillable_timeout{std::chrono::seconds(30)};
  // Workers of a round, as far as known: fewer descriptors are reserved for fewer workers.
  std::size_t most_at_once = ChildDescriptors::kSlots;
};

struct WorkerEnd {
  int local_rank = 0;  // its index in start()'s commands
  int pid = 0;         // 0: NotStarted
  ExitStatus status;
  std::chrono::steady_clock::time_point seen;  // when its pidfd reported the end
  WallTime time;                               // the same moment, for display
  bool stopped_by_us = false;                  // it ended after the first stop signal
  bool out_of_memory = false;                  // killed by the kernel's out-of-memory killer
  std::string message;  // why nothing was executed, if the program is not the cause
  std::optional<WorkerUsage> usage{};
  bool operator==(const WorkerEnd&) const = default;
};

// Queues all events and processes those of a loop turn together. If 256 workers end together,
// orphans are looked for only once, and no callback is called from within a method.
class Workers final : private WorkerStarter::Listener {
 public:
  struct Listener {
    virtual ~Listener() = default;
    // The commands' descriptors are no longer needed. `pids` contains the pid of each worker by
    // local rank, including exited ones; 0: not started. After a failure or a stop, some may still
    // wait for their exec.
    virtual void on_all_started(const std::vector<int>& /*pids*/) {}
    // Called at once for the first failure, and for later ones that precede the stop.
    virtual void on_worker_failed(const WorkerEnd& end) = 0;
    // Whether the stop of the other workers after this failure waits for stop(), for up to 15 s.
    virtual bool holds_stop(const WorkerEnd& /*end*/) { return false; }
    // Called for every end of a started worker, for observers. May be called from within other
    // calls.
    virtual void on_worker_ended(const WorkerEnd& /*end*/) {}
    // Every worker returned 0. Leftover processes may still be running.
    virtual void on_all_succeeded() = 0;
    // Called 1 s after success with the processes that the round waits for, for up to `time_left`.
    virtual void on_waiting(const LeftoverList& /*leftovers*/,
                            std::chrono::milliseconds /*time_left*/) {}
    // Nothing of this round is running any more, except kept and unkillable processes.
    virtual void on_all_gone(const Leftovers& leftovers) = 0;
  };

  Workers(asio::io_context& io, Log log, WorkersSpec spec, Listener& listener);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Starts one worker per command (at least one), all with the same `inherited`. Returns when the
  // first few exist, without waiting for any exec. If one cannot be started, the rest are not tried
  // and the running ones are stopped. The commands' descriptors must stay open until
  // on_all_started; other borrowed data may be released on return. `warm` starts the workers that
  // it supports (null: none), and must outlive the round.
  void start(std::vector<Command> commands, WarmStarter* warm = nullptr);

  // Sends `signal` and SIGCONT to every process of the round, and SIGKILL at the deadline. Also
  // stops kept processes; on_all_gone() is then called again. Has no effect if nothing is running
  // or the round has been stopped before.
  void stop(int signal = SIGTERM) { feed(worker_group::StopRequested{signal}); }
  // Sends `signal` to the workers, and stops them after `time` if they have not exited.
  void stop_after_notice(int signal, std::chrono::milliseconds time) {
    feed(worker_group::StopRequested{signal, time});
  }
  // Sends SIGKILL to all processes now.
  void kill_now() { feed(worker_group::KillRequested{}); }
  // True from an on_all_gone() with kept processes until these are stopped or the next start().
  bool has_kept() const { return group_.phase == worker_group::Phase::Kept; }
  // Sends a signal such as USR1, USR2 or CONT to every worker's group, without other effects.
  void pass_on(int signal);

  // Sends a signal to that worker's process group if it is running.
  void signal_worker(int local_rank, int signal);

  // For a tool of the agent that is being terminated, identified by its process group: the round
  // waits for it but does not report it as a leftover process. For this round only.
  void disregard_group(int group) { orphans_.mark_group(group); }

  // Excludes this child from all rounds: it is neither signaled nor waited for. 0: none.
  void spare(int pid);
  // The excluded child has been reaped.
  void spared_ended();

  // Pids by local rank; 0 for workers that are not running.
  std::vector<int> pids() const;

 private:
  using Alive = std::weak_ptr<char>;
  // To all processes of this round, most recently.
  enum class Sent { Nothing, Notice, Stop, Kill };

  void feed(const worker_group::Event& event);
  void on_begun(int local_rank, const Spawned& spawned) override;
  void on_refused(int local_rank, const Refusal& refusal) override;
  void on_memory_not_placed(int error_number) override;
  void on_all_started() override;
  void note_sent(Sent sent);
  void on_end(int local_rank, int pid, const ExitStatus& status);
  void note_end(int local_rank, int pid, const ExitStatus& status);
  void collect_all();
  void drain();
  void wait_for_children();
  void look_soon();
  void look();
  bool is_stopped_by_signal(const ExitStatus& status) const;

  void perform(const worker_group::SignalAll& all);
  void perform(const worker_group::NotifyAll& notice);
  void perform(const worker_group::KillAll&);
  void perform(const worker_group::CheckIfGone&) { look_soon(); }
  void perform(const worker_group::ReportFailure& failure);
  void perform(const worker_group::ReportSuccess&);
  void perform(const worker_group::ReportWaiting& waiting);
  void perform(const worker_group::ReportGone& gone);
  void open();
  void warn_if_blind();

  asio::io_context& io_;
  Log log_;
  Listener& listener_;
  WorkerStarter starter_;

  worker_group::State group_;
  std::deque<worker_group::Event> events_;
  std::vector<std::unique_ptr<Process>> processes_;  // by local rank; null: not begun
  std::vector<WorkerEnd> ends_;                      // by local rank
  std::unordered_map<int, int> running_;             // pid -> local rank
  std::vector<int> begun_;                           // pids by local rank; 0: not started
  Orphans orphans_;
  OomWatch oom_;
  rendezvous::DeadlineTimer timer_;
  asio::signal_set child_signals_;
  int round_ = 0;
  bool is_open_ = false;        // from start() to on_all_gone(), and while kept processes stop
  bool has_succeeded_ = false;  // every worker of this round returned 0
  Sent sent_ = Sent::Nothing;
  int stop_signal_ = SIGTERM;  // if sent_ is Stop
  bool is_started_ = false;    // on_all_started() has been reported
  bool is_refused_ = false;    // a program was not executed: the failure of this round
  bool has_warned_ = false;    // about memory placement
  bool has_warned_blind_ = false;
  std::vector<std::optional<WorkerPlacement>> placements_;  // by local rank
  bool drain_posted_ = false;
  bool look_posted_ = false;
  std::shared_ptr<char> alive_ = std::make_shared<char>();  // lets late handlers detect destruction
};

}  // namespace drun::agent
