// core. The clock of a node's phases (rendezvous/job/phase_times.h).
#pragma once

#include <array>
#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "rendezvous/job/phase_times.h"

namespace drun::agent {

using drun::index_of;
using drun::kPhaseCount;
using drun::Phase;
using drun::phase_named;
using drun::PhaseTimes;
using drun::word_of;

// A node whose workers print nothing is counted as running from their exec: a Start that does not
// end in Running becomes Running, and one that is still open does so after this time.
inline constexpr std::chrono::minutes kLongestSilentStart{5};
// A node learns only then whether the job ends instead of being restarted: a shorter Restarting at
// the end of a job counts as Stopping.
inline constexpr std::chrono::seconds kLongestFarewell{1};

// Adds up a node's time. The functions that may enter a phase return false if they did not.
class PhaseClock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit PhaseClock(Time now) : since_(now) {}

  Phase current() const { return current_; }
  bool enter(Phase phase, Time now);

  // The start of the workers of a round, which begins with Spawn, then Start or Running.
  bool begin_round(Time now);
  void begin_spawn(Time now) { spawned_ = now; }
  bool end_spawn(Time now);
  // The first output of that rank.
  bool note_print(int rank, Time now);

  NodeTimes times(Time now) const;
  // Includes the current phase.
  PhaseTimes totals(Time now) const;
  // The same at the end of the job.
  PhaseTimes final_totals(Time now) const;

 private:
  Phase current_ = Phase::Waiting;
  Time since_;
  Time spawned_{};                    // this round's workers
  std::optional<int> slowest_start_;  // of this round: the rank that printed last
  std::chrono::milliseconds slowest_start_time_{0};
  std::array<std::chrono::nanoseconds, kPhaseCount> totals_{};
};

// {"waiting": seconds, ...}, with every phase.
nlohmann::ordered_json phase_times_json(const PhaseTimes& times);
// Of a job: the mean over its nodes, and for each phase {"seconds", "node_rank", "rank"} of the
// node or rank with the longest time. Null if nothing is known.
nlohmann::ordered_json mean_times_json(const JobTimes& times);
nlohmann::ordered_json longest_times_json(const JobTimes& times);

}  // namespace drun::agent
