#include "launcher/plan/deadline.h"

#include <charconv>
#include <cstdint>
#include <string>

#include "rendezvous/base/text.h"

namespace drun {
namespace {

// SLURM_JOB_END_TIME, in seconds since 1970.
std::optional<WallTime> slurms_end(const HostFacts& host) {
  const std::optional<std::string> text = variable(host, "SLURM_JOB_END_TIME");
  if (!text) return std::nullopt;
  std::int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), seconds);
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (error != std::errc() || end != text->data() + text->size() || seconds < 1 || seconds > kMost)
    return std::nullopt;
  return WallTime(std::chrono::seconds(seconds));
}

}  // namespace

Result<std::optional<DeadlineSpec>> plan_deadline(const Options& options, const HostFacts& host,
                                                  std::chrono::milliseconds shutdown_timeout) {
  if (!options.time_limit && !options.signal_before && !options.requeue) return {std::nullopt};
  DeadlineSpec deadline;
  deadline.limit = options.time_limit;
  deadline.slurm_job = variable(host, "SLURM_JOB_ID").value_or("");
  deadline.end = slurms_end(host);
  if (options.requeue && deadline.slurm_job.empty())
    return usage_error("--requeue", "SLURM_JOB_ID is not set, so there is no job to requeue");
  if (!deadline.limit && deadline.slurm_job.empty())
    return usage_error("--signal-before",
                       "no deadline is known; give --time-limit, or start drun in a Slurm job");
  if (options.signal_before) {
    deadline.signal_before = options.signal_before->time;
    deadline.signal = options.signal_before->signal;
  }
  if (deadline.signal_before <= shutdown_timeout)
    return usage_error(
        "--signal-before=" + rendezvous::duration_text(deadline.signal_before),
        "workers are stopped --shutdown-timeout (" + rendezvous::duration_text(shutdown_timeout) +
            ") before the deadline, so they would have no time; give a longer time, or a shorter "
            "--shutdown-timeout");
  deadline.reason =
      deadline.limit ? "the time limit of " + rendezvous::duration_text(*deadline.limit) + " ends"
                     : "the time limit of Slurm job " + deadline.slurm_job + " ends";
  return {std::move(deadline)};
}

}  // namespace drun
