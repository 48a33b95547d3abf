#include "agent/supervise/deadline_watch.h"

#include <time.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "agent/spawn/command.h"
#include "agent/wall_time.h"

namespace drun::agent {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr std::chrono::seconds kAskEvery{60};
// Until the end is known: Slurm before 23.02 sets no variable.
constexpr std::chrono::seconds kAskFirst{5};
constexpr int kFirstQueries = 12;
constexpr std::chrono::seconds kAskLimit{20};
// From the last worker's SIGKILL to the end of drun, with the report on its way.
constexpr std::chrono::seconds kReportTime{2};

}  // namespace

std::optional<WallTime> end_time_of(std::string_view scontrol_text) {
  constexpr std::string_view kField = " EndTime=";
  const std::size_t at = scontrol_text.find(kField);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string text(scontrol_text.substr(at + kField.size(), 19));
  std::tm parts{};
  const char* const end = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  parts.tm_isdst = -1;
  const std::time_t seconds = std::mktime(&parts);
  if (seconds == -1) return std::nullopt;
  return std::chrono::time_point_cast<WallTime::duration>(
      std::chrono::system_clock::from_time_t(seconds));
}

rendezvous::JobDeadline job_deadline(const DeadlineSpec& spec, WallTime end, WallTime wall_now,
                                     std::chrono::steady_clock::time_point now,
                                     Milliseconds shutdown_timeout) {
  constexpr WallTime::duration kMost = std::chrono::hours(24 * 365 * 30);  // cannot overflow
  const auto end_at = now + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                std::min(end - wall_now, kMost));
  return {.signal_at = end_at - spec.signal_before,
          .stop_at = end_at - shutdown_timeout - kReportTime,
          .signal = spec.signal,
          .reason = spec.reason};
}

DeadlineWatch::DeadlineWatch(asio::io_context& io, Log log, const AgentSpec& spec, MayAsk may_ask,
                             OnDeadline on_deadline)
    : io_(io),
      log_(std::move(log)),
      spec_(*spec.deadline),
      shutdown_timeout_(spec.shutdown_timeout),
      environment_(to_lines(spec.worker.environment)),
      may_ask_(std::move(may_ask)),
      on_deadline_(std::move(on_deadline)),
      timer_(io) {}

void DeadlineWatch::start() {
  if (spec_.limit) own_end_ = wall_now() + *spec_.limit;
  end_ = own_end_;
  if (spec_.end) end_ = end_ ? std::min(*end_, *spec_.end) : *spec_.end;
  if (end_) report(*end_);
  if (!spec_.slurm_job.empty()) end_ ? ask_later() : ask();
}

void DeadlineWatch::stop() {
  timer_.cancel();
  stop_asking();
}

int DeadlineWatch::stop_asking() {
  is_asking_ = false;
  if (!scontrol_) return 0;
  const int group = scontrol_->pid();
  scontrol_.reset();
  return group;
}

void DeadlineWatch::report(WallTime end) {
  on_deadline_(
      job_deadline(spec_, end, wall_now(), std::chrono::steady_clock::now(), shutdown_timeout_));
}

void DeadlineWatch::ask_later() {
  const bool is_frequent = !end_ && queries_ < kFirstQueries;
  timer_.set(std::chrono::steady_clock::now() + (is_frequent ? kAskFirst : kAskEvery),
             [this] { ask(); });
}

void DeadlineWatch::ask() {
  ask_later();
  if (is_asking_ || !may_ask_()) return;
  is_asking_ = true;
  ++queries_;
  if (!starter_) starter_.emplace(io_, 1);
  scontrol_ = std::make_unique<Helper>(
      io_, *starter_, std::vector<std::string>{"scontrol", "show", "job", spec_.slurm_job, "-o"},
      environment_, kAskLimit, [this](const Helper::End& answer) {
        is_asking_ = false;
        const std::optional<WallTime> slurm_end = end_time_of(answer.output);
        if (slurm_end) take(*slurm_end);
      });
}

// The earlier one of the two limits applies. Slurm's may move in either direction.
void DeadlineWatch::take(WallTime slurm_end) {
  const WallTime end = own_end_ ? std::min(*own_end_, slurm_end) : slurm_end;
  if (end == end_) return;
  if (end_) log_.info("the end of Slurm job " + spec_.slurm_job + " has moved");
  end_ = end;
  report(end);
}

}  // namespace drun::agent
