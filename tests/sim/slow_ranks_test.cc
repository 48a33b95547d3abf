// False alarms and slow ranks in simulated training jobs (training_job.h).
#include "tests/sim/seeds.h"
#include "tests/sim/training_job.h"
#include "tests/support/machine.h"

namespace drun::test {
namespace {

constexpr double kHours = 2;
// Enough for the rate to be sure; with sanitizers, 200 would take as long as ten other tests.
constexpr int kHealthyJobs = kSlowdown == 1 ? 200 : 80;

struct Counts {
  double node_hours = 0;
  int alarms = 0;
};

// Jobs in which no rank is slow.
Counts run_healthy(SpeedMeasure measure, int jobs) {
  Counts counts;
  for (const std::uint32_t seed : seeds(jobs)) {
    TrainingSpec spec = healthy_training(seed);
    spec.measure = measure;
    if (measure == SpeedMeasure::Steps) spec.exchange = 0;
    TrainingJob job(spec, seed);
    for (const auto& [time, slow] : job.run(kHours * 3600)) {
      UNSCOPED_INFO(replay(seed) << ": " << text_of(slow) << " after " << time << " s");
      ++counts.alarms;
    }
    counts.node_hours += spec.nodes * kHours;
  }
  return counts;
}

}  // namespace

TEST_CASE("healthy training has less than one false alarm of slow ranks in 100 node-hours") {
  const SpeedMeasure measure =
      GENERATE(SpeedMeasure::OwnTime, SpeedMeasure::Nccl, SpeedMeasure::Steps);
  const Counts counts = run_healthy(measure, kHealthyJobs);
  std::printf("%d false alarms in %.0f node-hours\n", counts.alarms, counts.node_hours);
  CHECK((seeds_are_chosen() || counts.alarms < counts.node_hours / 100));
}

TEST_CASE("a rank that is 12 % slower is found within two minutes where steps are short") {
  int found = 0;
  int jobs = 0;
  for (const std::uint32_t seed : seeds(50)) {
    TrainingSpec spec = healthy_training(seed);
    spec.step_s = std::min(spec.step_s, 1.0);
    spec.exchange = 0.2;
    spec.jitter = std::min(spec.jitter, 0.05);
    spec.bias = 0.01;
    spec.checkpoint_every_s = spec.evaluate_every_s = spec.disturbed_every_s = 0;
    spec.slow_rank = spec.nodes * spec.workers - 1;
    spec.slow_by = 0.12;
    TrainingJob job(spec, seed);
    const auto named = job.run(125);
    ++jobs;
    found += named.size() == 1 && named[0].second.rank == spec.slow_rank ? 1 : 0;
  }
  INFO(found << " of " << jobs);
  CHECK((seeds_are_chosen() || 10 * found >= 9 * jobs));
}

}  // namespace drun::test
