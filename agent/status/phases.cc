#include "agent/status/phases.h"

#include <nlohmann/json.hpp>

#include "agent/wall_time.h"

namespace drun::agent {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

bool PhaseClock::enter(Phase phase, Time now) {
  if (phase == current_) return false;
  const bool was_silent = current_ == Phase::Start && phase != Phase::Running;
  totals_.at(index_of(was_silent ? Phase::Running : current_)) += now - since_;
  current_ = phase;
  since_ = now;
  return true;
}

bool PhaseClock::begin_round(Time now) {
  slowest_start_.reset();
  slowest_start_time_ = {};
  return enter(Phase::Spawn, now);
}

bool PhaseClock::end_spawn(Time now) {
  return current_ == Phase::Spawn && enter(slowest_start_ ? Phase::Running : Phase::Start, now);
}

bool PhaseClock::note_print(int rank, Time now) {
  slowest_start_ = rank;
  slowest_start_time_ = std::chrono::duration_cast<std::chrono::milliseconds>(now - spawned_);
  return current_ == Phase::Start && enter(Phase::Running, now);
}

NodeTimes PhaseClock::times(Time now) const {
  return {.phases = totals(now),
          .current = current_,
          .slowest_start = slowest_start_,
          .slowest_start_time = slowest_start_time_};
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

Json phase_times_json(const PhaseTimes& times) {
  Json object = Json::object();
  for (std::size_t i = 0; i < kPhaseCount; ++i)
    object[word_of(static_cast<Phase>(i))] = in_seconds(times.at(i));
  return object;
}

Json mean_times_json(const JobTimes& times) {
  return times.nodes == 0 ? Json(nullptr) : phase_times_json(times.mean);
}

Json longest_times_json(const JobTimes& times) {
  if (times.nodes == 0) return nullptr;
  Json object = Json::object();
  for (std::size_t i = 0; i < kPhaseCount; ++i) {
    const LongestTime& longest = times.longest.at(i);
    object[word_of(static_cast<Phase>(i))] = {
        {"seconds", in_seconds(longest.time)},
        {"node_rank", longest.node_rank},
        {"rank", longest.rank ? Json(*longest.rank) : Json(nullptr)}};
  }
  return object;
}

}  // namespace drun::agent
