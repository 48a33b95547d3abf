#include "agent/hang/hang_watch.h"

#include <utility>

#include "agent/hang/life_signs.h"

namespace drun::agent {

using Clock = std::chrono::steady_clock;

Result<void> HangWatch::prepare(const World& world) {
  const bool has_files = is_on() || (world.world_size > 1 && !world.is_preflight);
  Result<void> prepared = files_.prepare(world.round, has_files ? world.local_world_size : 0);
  if (prepared || is_on()) return prepared;
  return files_.prepare(world.round, 0);
}

void HangWatch::start(const World& world, Pids pids, OnSuspects on_suspects) {
  if (!is_on()) return;
  base_rank_ = world.base_rank;
  positions_.clear();
  pids_ = std::move(pids);
  on_suspects_ = std::move(on_suspects);
  state_ = hang::begin(pids_().size(), timeout_, Clock::now());
  state_.ask_interval = hang::ask_interval(timeout_, world.node_count);
  wait();
}

void HangWatch::stop() {
  timer_.cancel();
  on_suspects_ = nullptr;
}

void HangWatch::begin_look() { hang::begin_look(state_, Clock::now()); }

void HangWatch::end_look() { hang::end_look(state_, Clock::now()); }

void HangWatch::note_answers() {
  if (on_suspects_) hang::note_answers(state_, look_for_life(pids_()));
}

std::vector<WorkerFacts> HangWatch::facts(std::size_t count, const ras::Findings& findings) {
  if (on_suspects_) sample();
  const auto& positions = findings.positions.empty() ? positions_ : findings.positions;
  std::vector<WorkerFacts> facts;
  for (std::size_t i = 0; i < count; ++i)
    facts.push_back({.pulse = files_.pulse(i),
                     .is_quiet = on_suspects_ && hang::is_quiet(state_, i),
                     .nccl = i < positions.size() ? positions[i] : ras::RankPosition()});
  return facts;
}

void HangWatch::wait() {
  timer_.expires_after(interval());
  timer_.async_wait([this](const error_code& ec) {
    if (ec || !on_suspects_) return;
    look();
    if (on_suspects_) wait();
  });
}

void HangWatch::look() {
  const std::vector<hang::Suspect> suspects = sample();
  if (!suspects.empty()) on_suspects_(suspects);
  if (ras_.can_be_asked() && hang::wants_nccl(state_, Clock::now())) ask_nccl();
}

std::vector<hang::Suspect> HangWatch::sample() {
  std::vector<hang::Sample> samples = look_for_life(pids_());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i].output = output_.printed(static_cast<int>(i));
    samples[i].writes_to_file = output_.writes_to_file(static_cast<int>(i));
    samples[i].heartbeat = files_.heartbeat(i);
  }
  return hang::take(state_, samples, Clock::now());
}

void HangWatch::ask_nccl() {
  hang::note_asked(state_, Clock::now());
  ras_.ask({.pids = pids_(), .base_rank = base_rank_}, [this](const ras::Findings& findings) {
    if (!on_suspects_) return;
    positions_ = findings.positions;
    hang::hear(state_, findings.positions, Clock::now());
  });
}

}  // namespace drun::agent
