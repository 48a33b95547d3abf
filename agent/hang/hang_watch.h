// edge. Looks for workers that hang, a few times per timeout: samples their signs of life, and asks
// the machine (hang.h) what they mean. Does nothing at all when the timeout is 0.
//
// Round:   prepare, then start when the workers run, stop when they are stopped.
// Owner:   WorkerWatch; the Output and the Service must outlive it.
// Thread:  the io_context's only.
// Errors:  prepare: System, where heartbeat files cannot be made.
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

  Result<void> prepare(int round, int workers);
  // DRUN_HEARTBEAT_FILE; empty when it is off.
  std::string heartbeat_file(std::size_t local_rank) const;

  void start(const World& world, Pids pids, OnSuspects on_suspects);
  void stop();

  // Around what stops workers for a while to look at them.
  void begin_look();
  void end_look();

  // Of the first so many workers. `findings`: NCCL's just now; when they are empty, the latest.
  std::vector<WorkerFacts> facts(std::size_t count, const ras::Findings& findings) const;

 private:
  void wait();
  void look();
  void ask_nccl();

  asio::steady_timer timer_;
  std::chrono::milliseconds timeout_;
  Output& output_;
  ras::Service& ras_;
  int base_rank_ = 0;
  std::vector<ras::RankPosition> standings_;  // by the latest answer; empty: there is none
  HeartbeatFiles files_;
  hang::State state_;
  Pids pids_;
  OnSuspects on_suspects_;
};

}  // namespace drun::agent
