// edge. Determines the job's deadline in terms of this process's steady clock.
//
// The end time of a Slurm job can change (scontrol update), so scontrol is run again every minute.
// Output that cannot be parsed is ignored.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/spec.h"
#include "agent/stacks/helper_program.h"
#include "rendezvous/base/log.h"
#include "rendezvous/coordinator/round_events.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/net/deadline_timer.h"

namespace drun::agent {

// The end time in the output of `scontrol show job -o`: "... EndTime=2026-11-25T18:00:00 ...", in
// this machine's time zone. nullopt if the job has none ("Unknown") or the text is invalid.
std::optional<WallTime> end_time_of(std::string_view scontrol_text);

// The deadline for the coordinator. `shutdown_timeout`: time for the remaining workers to exit.
rendezvous::JobDeadline job_deadline(const DeadlineSpec& spec, WallTime end, WallTime wall_now,
                                     std::chrono::steady_clock::time_point now,
                                     std::chrono::milliseconds shutdown_timeout);

class DeadlineWatch {
 public:
  using OnDeadline = std::function<void(const rendezvous::JobDeadline&)>;
  // Whether a program may be started now. Must be false while workers are being stopped, because
  // the program would be treated as their leftover process.
  using MayAsk = std::function<bool()>;

  DeadlineWatch(asio::io_context& io, Log log, const AgentSpec& spec, MayAsk may_ask,
                OnDeadline on_deadline);

  // Calls `on_deadline` at once if the end is known, and again on each change. Keeps the io_context
  // running until stop().
  void start();
  void stop();
  // Kills a running scontrol. Returns its process group, or 0.
  int stop_asking();

 private:
  void report(WallTime end);
  void ask_later();
  void ask();
  void take(WallTime slurm_end);

  asio::io_context& io_;
  const Log log_;
  const DeadlineSpec spec_;
  const std::chrono::milliseconds shutdown_timeout_;
  const std::vector<std::string> environment_;
  const MayAsk may_ask_;
  const OnDeadline on_deadline_;
  std::optional<WallTime> own_end_;  // by --time-limit
  std::optional<WallTime> end_;      // the earlier one of both
  int queries_ = 0;
  bool is_asking_ = false;
  rendezvous::DeadlineTimer timer_;
  std::optional<ProgramStarter> starter_;  // created for the first query
  std::unique_ptr<Helper> scontrol_;
};

}  // namespace drun::agent
