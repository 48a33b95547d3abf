// edge. Observes this node's workers while they run: detects hangs, reads each worker's stacks on
// request, and finds errors of GPUs in the kernel log.
//
// Hangs:   with --hang-timeout, samples the workers' signs of activity a few times per timeout, in
//          one walk through /proc, and passes them to the state machine in hang.h.
// Cost:    of a sample, about 5 us per process of the machine and 10 us per process of the workers.
// Round:   prepare(); start() when the workers run; stop() before they are stopped, because a
//          debugger still running then would be treated as their leftover process.
// Owner:   Agent; the Output and the environment must outlive it.
// Thread:  the io_context's only.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "agent/hang/flight_requests.h"
#include "agent/hang/hang.h"
#include "agent/hang/heartbeat_files.h"
#include "agent/hang/node_look.h"
#include "agent/nccl_ras/ras_service.h"
#include "agent/output/output.h"
#include "agent/process/kernel_reports.h"
#include "agent/spec.h"
#include "agent/stacks/evidence.h"
#include "agent/stacks/stacks.h"
#include "rendezvous/base/log.h"
#include "rendezvous/job/world.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

class WorkerWatch {
 public:
  using Pids = std::function<std::vector<int>()>;
  using OnSuspects = std::function<void(const std::vector<hang::Suspect>&)>;
  using OnEvidence = std::function<void(const Evidence&)>;

  // `environment`: for the debuggers that read stacks.
  WorkerWatch(asio::io_context& io, const Log& log, const AgentSpec& spec,
              std::span<const std::string> environment, Output& output);

  // Creates heartbeat files also without hang detection, unless the world has a single worker: they
  // show slow ranks. If they cannot be created, the workers run without them, which is logged once.
  // Errors: System if the files for PyTorch's Flight Recorder cannot be created.
  Result<void> prepare(const World& world);
  // Where PyTorch is asked for its Flight Recorder.
  std::vector<EnvironmentEntry> flight_environment(int local_rank) const {
    return flights_.environment(local_rank);
  }
  // The workers' DRUN_HEARTBEAT_FILE and NCCL_RAS_ADDR; empty: not set.
  std::string heartbeat_file(std::size_t local_rank) const { return heartbeats_.path(local_rank); }
  const std::string& ras_address() const { return ras_.variable(); }
  // From the heartbeat file.
  CallTimes call_times(std::size_t local_rank) const { return heartbeats_.call_times(local_rank); }
  // `on_positions` is called from the loop, by local rank; not after stop(). Requires start().
  bool can_ask_nccl() const { return ras_.can_be_asked(); }
  void ask_nccl(std::function<void(const std::vector<ras::RankPosition>&)> on_positions);

  // Hangs are not detected in a world of probes.
  void start(const World& world, Pids pids, OnSuspects on_suspects);
  // Kills running debuggers and returns their process groups.
  std::vector<int> stop();
  // Call at the end of the job, after stop().
  void close() { flights_.close(); }

  // The time between two hang checks.
  std::chrono::milliseconds interval() const { return hang::sample_interval(timeout_); }

  // Errors of GPUs since prepare() that may concern the worker. `pids`: of all workers, by local
  // rank.
  std::vector<std::string> gpu_faults(int pid, const std::vector<int>& pids);

  // Inspects the workers, which must be running. `on_evidence` is called once, from the loop or
  // from stop().
  void look(OnEvidence on_evidence);

 private:
  void wait();
  std::vector<hang::Suspect> sample();
  // As of now: a worker that an operation has kept waiting until the look may have gone on since
  // the last sample. After stop(), none counts as quiet: they have ended.
  std::vector<WorkerFacts> facts_of(const NodeLook::Found& found, const std::vector<int>& pids);

  const Log log_;
  bool has_warned_ = false;  // that there are no heartbeat files
  ras::Service ras_;
  FlightRequests flights_;
  StackCollector collector_;
  NodeLook look_;
  KernelLog kernel_log_;
  std::vector<std::string> gpu_fault_lines_;
  HeartbeatFiles heartbeats_;
  Output& output_;
  asio::steady_timer timer_;
  const std::chrono::milliseconds timeout_;  // 0: hangs are not detected
  hang::State hangs_;
  OnSuspects on_suspects_;                         // null: hangs are not being detected
  std::vector<ras::RankPosition> nccl_positions_;  // of NCCL's latest answer; empty: none yet
  Pids pids_;
  int base_rank_ = 0;
  int node_rank_ = 0;
};

}  // namespace drun::agent
