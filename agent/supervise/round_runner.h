// edge. Runs this node's part of each round: carries out the state machine's actions
// (supervision.h) that concern the workers and what belongs to them (streams, commands, watches,
// failures, progress, GPU memory), and feeds the events that follow.
//
//   OpenStreams      Output opens the files      PrepareWorkers   watches and the preloaded
//   StartWorkers     commands, then Workers                       interpreter are ready
//   DrainOutput, ReadFailures, CollectProgress, FreeGpus: what Workers' last on_all_gone() leaves
//
// Owner:   Agent; everything that it gets must outlive it. Call stop() at the end of the job.
// Thread:  the io_context's only. The Listener is called from the loop or from within perform().
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "agent/hang/worker_watch.h"
#include "agent/output/output.h"
#include "agent/preload/preloader.h"
#include "agent/spec.h"
#include "agent/speed/speed_watch.h"
#include "agent/supervise/failure_record.h"
#include "agent/supervise/fault_injector.h"
#include "agent/supervise/observers.h"
#include "agent/supervise/supervision.h"
#include "agent/workers/gpu_release.h"
#include "agent/workers/progress_files.h"
#include "agent/workers/round_commands.h"
#include "agent/workers/worker_stdin.h"
#include "agent/workers/workers.h"
#include "rendezvous/base/log.h"
#include "rendezvous/job/restart_policy.h"
#include "rendezvous/job/world.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

class RoundRunner final : Workers::Listener, Preloader::Listener {
 public:
  struct Listener {
    virtual void on_event(supervision::Event event) = 0;
    // For the coordinator.
    virtual void on_speed(const NodeSpeed& speed) = 0;
    virtual void on_suspects(std::chrono::milliseconds interval, std::vector<Failure> suspects) = 0;
    virtual void on_fault_due(const InjectedFault& fault) = 0;

   protected:
    ~Listener() = default;
  };
  struct Context {
    asio::io_context& io;
    Log log;
    const AgentSpec& spec;
    Output& output;
    Observers& observers;
    const supervision::State& state;
  };

  RoundRunner(const Context& context, Listener& listener);

  // Starts to import the modules of --preload.
  void start_preloading();
  // Call for each world, before its event.
  void begin_round(const World& world);

  void perform(const supervision::OpenStreams&);
  void perform(const supervision::PrepareWorkers&);
  void perform(const supervision::StopPreparing&);
  void perform(const supervision::StartWorkers&);
  void perform(const supervision::CloseWorkerEnds&) { output_.close_worker_ends(); }
  void perform(const supervision::StopLooking&);
  void perform(const supervision::StopWorkers& stop);
  void perform(const supervision::KillWorkers&) { workers_.kill_now(); }
  void perform(const supervision::DrainOutput&);
  void perform(const supervision::ReadFailures&);
  void perform(const supervision::CollectProgress&);
  void perform(const supervision::StopCollecting&) { progress_files_.stop(); }
  void perform(const supervision::FreeGpus&);
  void perform(const supervision::StopFreeing&) { gpus_.stop(); }

  // Nothing keeps the io_context running after this.
  void stop();

  // Adds what the kernel log contains about the failures.
  void complete_failures();
  RoundFailures& failures() { return failures_; }
  const RoundFailures& failures() const { return failures_; }
  const WorkProgress& progress() const { return progress_; }
  Workers& workers() { return workers_; }
  const Workers& workers() const { return workers_; }
  WorkerWatch& watch() { return watch_; }
  FaultInjector& faults() { return faults_; }
  WorkerStdin& standard_input() { return standard_input_; }

 private:
  void on_all_started(const std::vector<int>& pids) override;
  bool holds_stop(const WorkerEnd& end) override;
  void on_worker_failed(const WorkerEnd& seen) override;
  void on_worker_ended(const WorkerEnd& end) override { observers_.note_ended(end); }
  void on_all_succeeded() override { listener_.on_event(supervision::AllSucceeded{}); }
  void on_waiting(const LeftoverList& leftovers, std::chrono::milliseconds time_left) override;
  void on_all_gone(const Leftovers& leftovers) override;
  void on_interpreter_begun(int pid) override { workers_.spare(pid); }
  void on_interpreter_reaped() override { workers_.spared_ended(); }
  void on_suspects(const std::vector<hang::Suspect>& suspects);
  void watch_speed();

  asio::io_context& io_;
  Log log_;
  const AgentSpec& spec_;
  Output& output_;
  Observers& observers_;
  const supervision::State& state_;
  Listener& listener_;
  WorkerStdin standard_input_;
  RoundCommands commands_;
  Workers workers_;
  FaultInjector faults_;
  WorkerWatch watch_;
  SpeedWatch speed_;
  ProgressFiles progress_files_;
  GpuRelease gpus_;
  std::optional<Preloader> preloader_;
  // Of the latest round.
  World world_;
  std::vector<WorkerStreams> streams_;
  std::vector<int> pids_;
  RoundFailures failures_;
  WorkProgress progress_;  // once it is over
};

}  // namespace drun::agent
