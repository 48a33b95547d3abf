#include "agent/speed/speed_watch.h"

#include <algorithm>
#include <utility>

namespace drun::agent {
namespace {

constexpr int kMostAmount = 1 << 30;
constexpr std::chrono::milliseconds kForEachNode{500};  // between two NCCL queries of the job

using Amount = int (*)(const SpeedSample&, const SpeedSample&, std::chrono::milliseconds);

// At least 1, because 0 means that it is not known.
int own_time(const SpeedSample& before, const SpeedSample& now, std::chrono::milliseconds length) {
  if (now.calls.begun == 0) return 0;
  const auto in_calls = std::chrono::duration_cast<std::chrono::milliseconds>(
      now.calls.in_calls - before.calls.in_calls);
  const auto own = length - std::clamp(in_calls, std::chrono::milliseconds(0), length);
  return static_cast<int>(std::clamp<std::int64_t>(own.count(), 1, kMostAmount));
}

// Not known without progress since the answer before: all ranks may wait for one of them in an
// evaluation.
int position(const SpeedSample& before, const SpeedSample& now, std::chrono::milliseconds) {
  const bool has_moved =
      now.nccl.is_known && before.nccl.is_known && now.nccl.progress != before.nccl.progress;
  if (!has_moved) return 0;
  return now.nccl.stand == NcclPosition::Behind ? 2 : 1;
}

int steps(const SpeedSample& before, const SpeedSample& now, std::chrono::milliseconds) {
  if (!before.step || !now.step || *now.step <= *before.step) return 0;
  return static_cast<int>(std::min<std::uint64_t>(*now.step - *before.step, kMostAmount));
}

}  // namespace

void compare(const std::vector<SpeedSample>& before, const std::vector<SpeedSample>& now,
             NodeSpeed& speed) {
  std::size_t running = 0;
  std::size_t calling = 0;
  std::size_t advanced = 0;
  bool is_in_nccl = false;
  const std::size_t count = std::min({before.size(), now.size(), kMostSpeedRanks});
  for (std::size_t i = 0; i < count; ++i) {
    if (!now[i].is_running) continue;
    ++running;
    calling += now[i].calls.begun > 0 ? 1 : 0;
    advanced += now[i].calls.begun > before[i].calls.begun ? 1 : 0;
    is_in_nccl = is_in_nccl || now[i].nccl.is_known;
  }
  const bool uses_worker_lib = calling > 0 && 2 * calling >= running;
  speed.has_progress = uses_worker_lib && 2 * advanced >= running;
  speed.measure = uses_worker_lib ? SpeedMeasure::OwnTime
                  : is_in_nccl    ? SpeedMeasure::Nccl
                                  : SpeedMeasure::Steps;
  const Amount amount = uses_worker_lib ? own_time : is_in_nccl ? position : steps;
  speed.amounts.clear();
  for (std::size_t i = 0; i < count; ++i)
    speed.amounts.push_back(now[i].is_running ? amount(before[i], now[i], speed.length) : 0);
  const bool is_known =
      std::any_of(speed.amounts.begin(), speed.amounts.end(), [](int each) { return each > 0; });
  if (is_known) return;
  speed.measure = SpeedMeasure::None;
  speed.amounts.clear();
}

void SpeedWatch::start(const World& world, Clock::time_point began, Sources sources) {
  stop();
  if (world.world_size < 2 || world.is_preflight) return;
  sources_ = std::move(sources);
  is_on_ = true;
  began_ = began;
  ask_every_ = static_cast<int>(1 + world.node_count * kForEachNode / window_length_);
  next_ = static_cast<int>((Clock::now() - began) / window_length_);
  last_.clear();
  nccl_.clear();
  wait();
}

void SpeedWatch::stop() {
  ++run_;
  is_on_ = false;
  timer_.cancel();
  sources_ = {};
}

void SpeedWatch::wait() {
  timer_.expires_at(began_ + (next_ + 1) * window_length_);
  timer_.async_wait([this](const error_code& ec) {
    if (ec || !is_on_) return;
    end_window();
    if (is_on_) wait();
  });
}

void SpeedWatch::end_window() {
  const Clock::time_point now = Clock::now();
  const Clock::time_point due = timer_.expiry();
  const bool is_late = now - due > window_length_ / 4;
  if (!processors_) processors_.emplace();
  std::vector<SpeedSample> samples = sample();
  const ProcessorTimes times = processors_->read();
  if (!is_late && !last_.empty()) {
    NodeSpeed speed{
        .window = next_,
        .length = std::chrono::duration_cast<std::chrono::milliseconds>(now - last_at_)};
    compare(last_, samples, speed);
    compare(last_times_, times, speed);
    sources_.report(speed);
  }
  if (!is_on_) return;
  last_ = std::move(samples);
  if (is_late) last_.clear();
  last_at_ = now;
  last_times_ = times;
  next_ = is_late ? static_cast<int>((now - began_) / window_length_) : next_ + 1;
  ask_nccl();
}

std::vector<SpeedSample> SpeedWatch::sample() {
  const std::vector<int> pids = sources_.pids();
  std::vector<SpeedSample> samples(pids.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    SpeedSample& sample = samples[i];
    sample.is_running = pids[i] != 0;
    if (!sample.is_running) continue;
    sample.calls = sources_.calls(i);
    sample.step = sources_.step(i);
    if (!sample.step && i < last_.size()) sample.step = last_[i].step;  // the file was truncated
    if (i < nccl_.size())
      sample.nccl = nccl_[i];
    else if (i < last_.size())
      sample.nccl = last_[i].nccl;
  }
  nccl_.clear();
  return samples;
}

// The answer is for the window that ends next. Not needed while the workers use worker_lib.
void SpeedWatch::ask_nccl() {
  const bool uses_worker_lib = std::any_of(
      last_.begin(), last_.end(), [](const SpeedSample& each) { return each.calls.begun > 0; });
  if (!sources_.ask_nccl || uses_worker_lib || next_ % ask_every_ != 0) return;
  sources_.ask_nccl([this, run = run_](const std::vector<ras::RankPosition>& positions) {
    if (run == run_) nccl_ = positions;
  });
}

}  // namespace drun::agent
