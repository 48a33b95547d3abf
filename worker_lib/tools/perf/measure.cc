#include "worker_lib/tools/perf/measure.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "worker_lib/tools/perf/trials.h"

namespace drun::perf {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBlocks = 15;
constexpr int kGuesses = 5;
constexpr double kMostTimes = 1e6;
// Under way at once; more say nothing new.
constexpr double kMostInARow = 1e4;

// A group, and where its numbers are.
struct Bench {
  ProcessGroup& group;
  const Place& place;

  bool is_in_a_row(const Trial& trial) const { return place.gpu && trial.takes_async_op; }
};

void run_in_a_row(const Trial& trial, int times, std::vector<Work>& under_way) {
  for (int i = 0; i < times; ++i) under_way.push_back(trial.run(async_op));
  for (const Work& work : under_way) work.wait();
}

double seconds_of(const Bench& bench, const Trial& trial, int times) {
  std::vector<Work> under_way;
  const bool is_in_a_row = bench.is_in_a_row(trial);
  if (is_in_a_row) under_way.reserve(static_cast<std::size_t>(times));
  bench.group.barrier();
  const Clock::time_point start = Clock::now();
  if (is_in_a_row) {
    run_in_a_row(trial, times, under_way);
  } else {
    for (int i = 0; i < times; ++i) trial.run({});
  }
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// In-place operations change what the next one starts from, so a result that is checked starts from
// fresh numbers, and is not timed.
void run_checked(const Trial& trial) {
  trial.fill();
  trial.run({});
  trial.check();
}

// Agreed upon by all ranks: they must run as many.
double largest(const Bench& bench, double value) {
  const Buffer one(bench.group, {.gpu = bench.place.gpu, .stream = bench.place.stream}, 1,
                   DataType::F64);
  one.fill([value](std::size_t) { return value; });
  bench.group.all_reduce(one.all(), ReduceOp::Max);
  return one.first();
}

// Of one operation, about: the least of a few, as one that is disturbed would have hardly any fit
// into a block.
double seconds_of_one(const Bench& bench, const Trial& trial) {
  double least = seconds_of(bench, trial, 2);
  for (int i = 1; i < kGuesses; ++i) least = std::min(least, seconds_of(bench, trial, 2));
  return largest(bench, least / 2);
}

double median_seconds(const Bench& bench, const Trial& trial, double budget) {
  const double once = seconds_of_one(bench, trial);
  const double most = bench.is_in_a_row(trial) ? kMostInARow : kMostTimes;
  const double for_block = budget / kBlocks;
  const int times = static_cast<int>(std::clamp(for_block / std::max(once, 1e-8), 1.0, most));
  std::vector<double> seconds;
  seconds.reserve(kBlocks);
  for (int i = 0; i < kBlocks; ++i) {
    seconds.push_back(seconds_of(bench, trial, times) / times);
    run_checked(trial);
  }
  std::nth_element(seconds.begin(), seconds.begin() + kBlocks / 2, seconds.end());
  return largest(bench, seconds[kBlocks / 2]);
}

}  // namespace

Measured measure(ProcessGroup& group, const Options& options, const Place& place,
                 std::size_t bytes) {
  const Trial trial = make_trial(group, options, place, bytes);
  run_checked(trial);
  const double seconds = median_seconds({group, place}, trial, options.seconds);
  Measured result{.bytes = trial.count * size_bytes(options.type), .count = trial.count};
  result.time_us = seconds * 1e6;
  result.algbw_gbs = static_cast<double>(result.bytes) / seconds / 1e9;
  result.busbw_gbs = result.algbw_gbs * trial.bus_factor;
  return result;
}

}  // namespace drun::perf
