// core. Where a job's time goes: the one list of phases, which reports, `drun status` and events
// share. Each moment of a node's time is in exactly one phase, so the phases sum to the wall time.
//
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string_view>

namespace drun::agent {

enum class Phase {
  Waiting,     // for other nodes: until the first round begins, and after this node's success
  Spawn,       // until every worker of the node is started
  Import,      // a preloaded interpreter imports its modules
  Start,       // until the first worker of the node prints something
  Running,     // until the first failure, a stop, or the end of the last worker
  Stopping,    // until no process of the round is left
  Restarting,  // until the next round begins
  Standby,     // while a round runs without this node
};
inline constexpr std::size_t kPhaseCount = 8;

// "waiting" and so on, as in events and JSON.
const char* word_of(Phase phase);
std::optional<Phase> phase_named(std::string_view word);
inline std::size_t index_of(Phase phase) { return static_cast<std::size_t>(phase); }

using PhaseTimes = std::array<std::chrono::milliseconds, kPhaseCount>;

// A node whose workers print nothing is counted as running from their exec: a Start that does not
// end in Running becomes Running, and one that is still open does so after this time.
inline constexpr std::chrono::minutes kLongestSilentStart{5};
// A node learns only then whether the job ends instead of being restarted: a shorter Restarting at
// the end of a job counts as Stopping.
inline constexpr std::chrono::seconds kLongestFarewell{1};

// Adds up a node's time.
class PhaseClock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit PhaseClock(Time now) : since_(now) {}

  Phase current() const { return current_; }
  // False: it was in that phase already.
  bool enter(Phase phase, Time now);
  // With the phase that is not over yet.
  PhaseTimes totals(Time now) const;
  // The same at the end of the job.
  PhaseTimes final_totals(Time now) const;

 private:
  Phase current_ = Phase::Waiting;
  Time since_;
  std::array<std::chrono::nanoseconds, kPhaseCount> totals_{};
};

}  // namespace drun::agent
