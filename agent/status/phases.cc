#include "agent/status/phases.h"

#include <algorithm>

namespace drun::agent {
namespace {

constexpr std::array<const char*, kPhaseCount> kWords{
    "waiting", "spawn", "import", "start", "running", "stopping", "restarting", "standby"};

}  // namespace

const char* word_of(Phase phase) { return kWords.at(index_of(phase)); }

std::optional<Phase> phase_named(std::string_view word) {
  const auto found = std::find(kWords.begin(), kWords.end(), word);
  if (found == kWords.end()) return std::nullopt;
  return static_cast<Phase>(found - kWords.begin());
}

bool PhaseClock::enter(Phase phase, Time now) {
  if (phase == current_) return false;
  const bool was_silent = current_ == Phase::Start && phase != Phase::Running;
  totals_.at(index_of(was_silent ? Phase::Running : current_)) += now - since_;
  current_ = phase;
  since_ = now;
  return true;
}

PhaseTimes PhaseClock::totals(Time now) const {
  auto totals = totals_;
  const bool is_silent = current_ == Phase::Start && now - since_ > kLongestSilentStart;
  totals.at(index_of(is_silent ? Phase::Running : current_)) += now - since_;
  PhaseTimes times{};
  for (std::size_t i = 0; i < kPhaseCount; ++i)
    times.at(i) = std::chrono::floor<std::chrono::milliseconds>(totals.at(i));
  return times;
}

PhaseTimes PhaseClock::final_totals(Time now) const {
  PhaseClock ended = *this;
  if (current_ == Phase::Restarting && now - since_ < kLongestFarewell)
    ended.current_ = Phase::Stopping;
  return ended.totals(now);
}

}  // namespace drun::agent
