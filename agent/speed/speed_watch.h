// edge. Measures how fast this node's workers are, in windows that begin with the round and are
// aligned on all nodes (rendezvous/ranks/slow_ranks.h judges them).
//
// Measure: worker_lib's time in calls, if most workers use worker_lib; else the position in NCCL,
//          if its RAS service answers; else the steps in the progress files.
// NCCL:    a query costs every process of the job some time, so all nodes together send at most two
//          per second.
// Late:    if a window ends late, this process did not run. Its report is not sent, and the next
//          one begins then.
// Owner:   Agent; start() when the workers run, stop() before they are stopped.
// Thread:  the io_context's only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "agent/hang/heartbeat_files.h"
#include "agent/nccl_ras/ras_position.h"
#include "agent/speed/processors.h"
#include "rendezvous/job/slow_rank.h"
#include "rendezvous/job/world.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

// --- The measure of one window: core

// A worker at the end of a window.
struct SpeedSample {
  bool is_running = false;  // false: the other fields are ignored
  CallTimes calls{};
  ras::RankPosition nccl{};
  std::optional<std::uint64_t> step{};
};

// Compares two samples of the same workers. Sets measure, has_progress and amounts; `speed.length`
// must be set.
void compare(const std::vector<SpeedSample>& before, const std::vector<SpeedSample>& now,
             NodeSpeed& speed);

// --- The watch

class SpeedWatch {
 public:
  using Clock = std::chrono::steady_clock;
  struct Sources {
    std::function<std::vector<int>()> pids;  // by local rank; 0: has ended
    std::function<CallTimes(std::size_t local_rank)> calls;
    std::function<std::optional<std::uint64_t>(std::size_t local_rank)> step;
    // Queries NCCL; null: there is no service.
    std::function<void(std::function<void(const std::vector<ras::RankPosition>&)>)> ask_nccl{};
    std::function<void(const NodeSpeed&)> report;
  };

  SpeedWatch(asio::io_context& io, std::chrono::milliseconds window)
      : timer_(io), window_length_(window) {}

  // Does nothing in a world of one worker, or of probes. `began`: the round.
  void start(const World& world, Clock::time_point began, Sources sources);
  void stop();

 private:
  void wait();
  void end_window();
  std::vector<SpeedSample> sample();
  void ask_nccl();

  asio::steady_timer timer_;
  std::chrono::milliseconds window_length_;
  std::optional<Processors> processors_;
  Sources sources_;
  bool is_on_ = false;
  int ask_every_ = 1;  // windows
  int run_ = 0;        // number of the latest start, for late answers
  Clock::time_point began_{};
  int next_ = 0;                         // the window that ends next
  std::vector<SpeedSample> last_{};      // at its begin; empty: it began late
  Clock::time_point last_at_{};          // likewise
  ProcessorTimes last_times_{};          // likewise
  std::vector<ras::RankPosition> nccl_;  // the latest answer, once
};

}  // namespace drun::agent
