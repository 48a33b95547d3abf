// edge. When the time that the job was given ends, in this process's steady clock.
//
// The end of a Slurm job can move (scontrol update), so scontrol is asked again once a minute. An
// answer that cannot be read changes nothing.
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

// The end in `scontrol show job -o`: "... EndTime=2026-11-25T18:00:00 ...", in this machine's time
// zone. Nothing if the job has none ("Unknown") or the text is another.
std::optional<WallTime> end_time_of(std::string_view scontrol_text);

// What the coordinator is to know. `shutdown_timeout`: what the workers that are left then get.
rendezvous::JobDeadline job_deadline(const DeadlineSpec& spec, WallTime end, WallTime wall_now,
                                     std::chrono::steady_clock::time_point now,
                                     std::chrono::milliseconds shutdown_timeout);

class DeadlineWatch {
 public:
  using OnDeadline = std::function<void(const rendezvous::JobDeadline&)>;
  // Whether a program may be started now: not while workers are being stopped, as it would be taken
  // for something that they left behind.
  using MayAsk = std::function<bool()>;

  DeadlineWatch(asio::io_context& io, Log log, const AgentSpec& spec, MayAsk may_ask,
                OnDeadline on_deadline);

  // Calls `on_deadline` at once if the end is known, and when it changes. Keeps the io_context
  // running until stop().
  void start();
  void stop();
  // Kills the scontrol that runs; gives its process group, or 0.
  int stop_asking();

 private:
  void tell(WallTime end);
  void ask_later();
  void ask();

  asio::io_context& io_;
  const Log log_;
  const DeadlineSpec spec_;
  const std::chrono::milliseconds shutdown_timeout_;
  const std::vector<std::string> environment_;
  const MayAsk may_ask_;
  const OnDeadline on_deadline_;
  std::optional<WallTime> end_;
  rendezvous::DeadlineTimer timer_;
  std::optional<ProgramStarter> starter_;  // from the first question on
  std::unique_ptr<Helper> scontrol_;
};

}  // namespace drun::agent
