#include "agent/hang/hang_watch.h"

#include <utility>

#include "agent/hang/life_signs.h"

namespace drun::agent {

using Clock = std::chrono::steady_clock;

Result<void> HangWatch::prepare(int round, int workers) {
  if (!is_on()) return {};
  return files_.prepare(round, workers);
}

std::string HangWatch::heartbeat_file(std::size_t local_rank) const {
  return is_on() ? files_.path(local_rank) : "";
}

void HangWatch::start(Pids pids, OnSuspects on_suspects) {
  if (!is_on()) return;
  pids_ = std::move(pids);
  on_suspects_ = std::move(on_suspects);
  state_ = hang::begin(pids_().size(), timeout_, Clock::now());
  wait();
}

void HangWatch::stop() {
  timer_.cancel();
  on_suspects_ = nullptr;
}

void HangWatch::begin_look() { hang::begin_look(state_, Clock::now()); }

void HangWatch::end_look() { hang::end_look(state_, Clock::now()); }

std::vector<WorkerFacts> HangWatch::facts(std::size_t count) const {
  std::vector<WorkerFacts> facts;
  for (std::size_t i = 0; i < count; ++i)
    facts.push_back({.pulse = files_.pulse(i), .is_quiet = hang::is_quiet(state_, i)});
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
  std::vector<hang::Sample> samples = look_for_life(pids_());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i].output = output_.printed(static_cast<int>(i));
    samples[i].heartbeat = files_.heartbeat(i);
  }
  const std::vector<hang::Suspect> suspects = hang::take(state_, samples, Clock::now());
  if (!suspects.empty()) on_suspects_(suspects);
}

}  // namespace drun::agent
