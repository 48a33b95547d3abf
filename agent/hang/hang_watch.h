// edge. Detects workers that hang: samples their signs of activity a few times per timeout and
// passes them to the state machine in hang.h. Does nothing if the timeout is 0.
//
// Round:   prepare(); start() when the workers run; stop() when they are stopped.
// Owner:   WorkerWatch; the Output and the Service must outlive it.
// Thread:  the io_context's only.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "agent/hang/hang.h"
#include "agent/hang/heartbeat_files.h"
#include "agent/hang/worker_evidence.h"
#include "agent/nccl_ras/ras_service.h"
#include "agent/output/output.h"
#include "rendezvous/job/world.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

class HangWatch {
 public:
  using Pids = std::function<std::vector<int>()>;
  using OnSuspects = std::function<void(const std::vector<hang::Suspect>&)>;

  HangWatch(asio::io_context& io, std::chrono::milliseconds timeout, Output& output,
            ras::Service& ras)
      : timer_(io), timeout_(timeout), output_(output), ras_(ras) {}

  bool is_on() const { return timeout_.count() > 0; }
  std::chrono::milliseconds interval() const { return hang::sample_interval(timeout_); }

  // Creates heartbeat files also without hang detection, unless the world has a single worker: they
  // show slow ranks. Errors: System if they cannot be created and hang detection is on.
  Result<void> prepare(const World& world);
  // The value of DRUN_HEARTBEAT_FILE; empty if there is none.
  std::string heartbeat_file(std::size_t local_rank) const { return files_.path(local_rank); }
  CallTimes call_times(std::size_t local_rank) const { return files_.call_times(local_rank); }

  void start(const World& world, Pids pids, OnSuspects on_suspects);
  void stop();

  // Call around an inspection that stops the workers for a while.
  void begin_look();
  void end_look();
  // Call when the workers have answered the inspection's request for a dump.
  void note_answers();

  // Facts about the first `count` workers, as of now: a worker that an operation has kept waiting
  // until the look may have gone on since the last sample. After stop(), none counts as quiet: they
  // have ended. `findings`: NCCL's newest answer; if empty, the latest stored one is used.
  std::vector<WorkerFacts> facts(std::size_t count, const ras::Findings& findings);

 private:
  void wait();
  void look();
  std::vector<hang::Suspect> sample();
  void ask_nccl();

  asio::steady_timer timer_;
  std::chrono::milliseconds timeout_;
  Output& output_;
  ras::Service& ras_;
  int base_rank_ = 0;
  std::vector<ras::RankPosition> positions_;  // from the latest answer; empty: none yet
  HeartbeatFiles files_;
  hang::State state_;
  Pids pids_;
  OnSuspects on_suspects_;
};

}  // namespace drun::agent
