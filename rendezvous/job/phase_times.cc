#include "rendezvous/job/phase_times.h"

#include <algorithm>

namespace drun {
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

void JobTimesSum::add(int node_rank, const NodeTimes& times) {
  ++job_.nodes;
  for (std::size_t i = 0; i < kPhaseCount; ++i) {
    sum_.at(i) += times.phases.at(i);
    LongestTime& longest = job_.longest.at(i);
    if (times.phases.at(i) > longest.time) longest = {times.phases.at(i), node_rank, {}};
  }
  LongestTime& start = job_.longest.at(index_of(Phase::Start));
  if (times.slowest_start && times.slowest_start_time > start.time)
    start = {times.slowest_start_time, node_rank, times.slowest_start};
}

JobTimes JobTimesSum::total() const {
  JobTimes job = job_;
  if (job.nodes == 0) return job;
  for (std::size_t i = 0; i < kPhaseCount; ++i) job.mean.at(i) = sum_.at(i) / job.nodes;
  return job;
}

}  // namespace drun
