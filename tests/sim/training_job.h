// The speed reports (rendezvous/job/slow_rank.h) of a simulated training job, for
// slow_ranks_test.cc.
//
// Each step, every rank works for a while, and then all exchange gradients: nobody continues before
// the last rank has arrived. The work varies from step to step and from rank to rank; sometimes a
// rank stalls (garbage collection, page cache, a late batch). Now and then rank 0 saves a
// checkpoint, one rank or all ranks evaluate, and a node is disturbed for less than a minute.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/ranks/slow_ranks.h"

namespace drun::test {

struct TrainingSpec {
  int nodes = 2;
  int workers = 8;  // per node
  SpeedMeasure measure = SpeedMeasure::OwnTime;
  double step_s = 1;      // of work
  double exchange = 0.2;  // after the last rank has arrived, as a share of the work
  double jitter = 0.05;   // standard deviation of a step's work
  double bias = 0.01;     // ... of the ranks' mean work
  double stalls = 0.005;  // per step and rank: a stall of half a step on average, with a heavy tail
  double checkpoint_every_s = 600, checkpoint_s = 20;
  double evaluate_every_s = 1200, evaluate_s = 120;
  bool evaluates_on_all = false;
  double disturbed_every_s = 3000;  // a node, for 20 to 50 s, by 30 %
  int slow_rank = -1;
  double slow_by = 0;
  bool is_node_slow = false;  // the node of slow_rank
};

class TrainingJob {
 public:
  static constexpr double kWindow = 10;

  TrainingJob(const TrainingSpec& spec, std::uint32_t seed) : spec_(spec), bits_(seed) {
    std::vector<rendezvous::SlowRanks::Node> nodes;
    for (int node = 0; node < spec.nodes; ++node)
      nodes.push_back({.host = "gpu" + std::to_string(node), .workers = spec.workers});
    slow_.begin_round(0, std::move(nodes));
    ranks_.resize(static_cast<std::size_t>(spec.nodes * spec.workers));
    for (Rank& rank : ranks_) rank.bias = 1 + spec.bias * normal();
    if (spec.slow_rank >= 0)
      for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
        if (rank == spec.slow_rank ||
            (spec.is_node_slow && rank / spec.workers == spec.slow_rank / spec.workers))
          at(rank).bias = 1 + spec.slow_by;
  }

  // The ranks and nodes that are named, with the time.
  std::vector<std::pair<double, SlowRank>> run(double seconds) {
    if (spec_.measure == SpeedMeasure::Steps)
      run_asynchronously(seconds);
    else
      while (now_ < seconds) step();
    return named_;
  }

 private:
  struct Rank {
    double bias = 1;
    double at = 0;               // asynchronous: the end of its current step
    std::vector<double> own{};   // by window, from first_window_
    std::vector<int> steps{};    // likewise
    std::vector<int> sampled{};  // 2: behind at the end of the window
  };

  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  double uniform() { return std::uniform_real_distribution<double>(0, 1)(bits_); }
  double normal() { return normal_(bits_); }

  bool is_due(double& next_s, double every_s) {
    if (every_s <= 0) return false;
    if (next_s == 0) next_s = every_s * uniform();
    if (now_ < next_s) return false;
    next_s = now_ + every_s * (0.8 + 0.4 * uniform());
    return true;
  }

  double work_of(int rank, double time) {
    double work = spec_.step_s * at(rank).bias *
                  std::exp(spec_.jitter * normal() - spec_.jitter * spec_.jitter / 2);
    if (uniform() < spec_.stalls)  // Pareto, of mean 0.5 steps
      work += spec_.step_s * std::min(0.25 / std::sqrt(1 - uniform()), 20.0);
    if (time < disturbed_until_ && rank / spec_.workers == disturbed_) work *= 1.3;
    return work;
  }

  void step() {
    const bool saves = is_due(next_checkpoint_, spec_.checkpoint_every_s);
    const bool evaluates = is_due(next_evaluation_, spec_.evaluate_every_s);
    if (is_due(next_disturbance_, spec_.disturbed_every_s)) {
      disturbed_ = static_cast<int>(uniform() * spec_.nodes);
      disturbed_until_ = now_ + 20 + 30 * uniform();
    }
    double arrived = 0;
    double first = 1e9;
    std::vector<double> works;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      double work = work_of(rank, now_);
      if (saves && rank == 0) work += spec_.checkpoint_s;
      if (evaluates && (rank == 0 || spec_.evaluates_on_all))
        work += spec_.evaluate_s * (spec_.evaluates_on_all ? 0.7 + 0.6 * uniform() : 1);
      works.push_back(work);
      arrived = std::max(arrived, work);
      first = std::min(first, work);
    }
    const double end = now_ + arrived + spec_.exchange * spec_.step_s;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      const double work = works[static_cast<std::size_t>(rank)];
      add(at(rank), now_, now_ + work);
      count(at(rank), now_ + work);
      // The answer of NCCL at the end of a window.
      const int window = window_of(now_);
      for (int w = window; (w + 1) * kWindow < end; ++w) {
        const double moment = (w + 1) * kWindow - now_;
        set(at(rank).sampled, w, work > moment && first < moment ? 2 : 1);
      }
    }
    now_ = end;
    while ((first_window_ + 1) * kWindow < now_) report();
  }

  void run_asynchronously(double seconds) {
    for (double until = kWindow; until < seconds; until += kWindow) {
      now_ = until;
      for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
        if (rank == 0 && is_due(next_evaluation_, spec_.evaluate_every_s))
          at(0).at += spec_.evaluate_s;
        while (at(rank).at < until) {
          at(rank).at += work_of(rank, at(rank).at);
          if (at(rank).at < until) count(at(rank), at(rank).at);
        }
      }
      report();
    }
  }

  static int window_of(double time) { return static_cast<int>(time / kWindow); }
  template <typename Number>
  Number& slot(std::vector<Number>& list, int window) {
    const auto index = static_cast<std::size_t>(std::max(window - first_window_, 0));
    if (list.size() <= index) list.resize(index + 1);
    return list[index];
  }
  void set(std::vector<int>& list, int window, int value) { slot(list, window) = value; }
  void count(Rank& rank, double time) { ++slot(rank.steps, window_of(time)); }
  void add(Rank& rank, double begin, double end) {
    while (begin < end) {
      const int window = window_of(begin);
      const double until = std::min(end, (window + 1) * kWindow);
      slot(rank.own, window) += until - begin;
      begin = std::max(until, std::nextafter(begin, 1e18));
    }
  }

  void report() {
    for (int node = 0; node < spec_.nodes; ++node) {
      NodeSpeed speed{.window = first_window_,
                      .length = std::chrono::milliseconds(static_cast<int>(1000 * kWindow)),
                      .measure = spec_.measure};
      int active = 0;
      for (int i = 0; i < spec_.workers; ++i) {
        Rank& rank = at(node * spec_.workers + i);
        const int steps = slot(rank.steps, first_window_);
        active += steps > 0 ? 1 : 0;
        speed.amounts.push_back(
            spec_.measure == SpeedMeasure::OwnTime
                ? std::max(static_cast<int>(1000 * slot(rank.own, first_window_)), 1)
            : spec_.measure == SpeedMeasure::Steps ? steps
            : steps > 0                            ? slot(rank.sampled, first_window_)
                                                   : 0);
      }
      speed.has_progress = 2 * active > spec_.workers;
      for (const SlowRank& slow : slow_.take(node, speed)) named_.emplace_back(now_, slow);
    }
    ++first_window_;
    for (Rank& rank : ranks_) {
      if (!rank.own.empty()) rank.own.erase(rank.own.begin());
      if (!rank.steps.empty()) rank.steps.erase(rank.steps.begin());
      if (!rank.sampled.empty()) rank.sampled.erase(rank.sampled.begin());
    }
  }

  TrainingSpec spec_;
  std::mt19937 bits_;
  std::normal_distribution<double> normal_;
  rendezvous::SlowRanks slow_;
  std::vector<Rank> ranks_;
  double now_ = 0;
  int first_window_ = 0;
  double next_checkpoint_ = 0, next_evaluation_ = 0, next_disturbance_ = 0;
  int disturbed_ = -1;
  double disturbed_until_ = 0;
  std::vector<std::pair<double, SlowRank>> named_;
};

// A job with typical disturbances, drawn by the seed.
inline TrainingSpec healthy_training(std::uint32_t seed) {
  std::mt19937 bits(seed);
  const auto between = [&bits](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(bits);
  };
  const auto log_between = [&](double low, double high) {
    return low * std::pow(high / low, between(0, 1));
  };
  TrainingSpec spec;
  constexpr int kNodes[] = {1, 2, 2, 4, 8};
  constexpr int kWorkers[] = {1, 2, 4, 8, 8, 8};
  spec.nodes = kNodes[bits() % 5];
  spec.workers = kWorkers[bits() % 6];
  if (spec.nodes * spec.workers < 2) spec.workers = 2;
  spec.step_s = log_between(0.25, 30);
  spec.exchange = log_between(0.03, 0.6);
  spec.jitter = log_between(0.01, 0.2);
  spec.bias = log_between(0.005, 0.03);
  spec.stalls = log_between(0.001, 0.03);
  spec.checkpoint_every_s = log_between(180, 3600);
  spec.checkpoint_s = std::min(log_between(3, 120), spec.checkpoint_every_s / 20);
  spec.evaluate_every_s = log_between(600, 7200);
  spec.evaluate_s = std::min(log_between(30, 600), spec.evaluate_every_s / 4);
  spec.evaluates_on_all = bits() % 2 == 0;
  spec.disturbed_every_s = log_between(900, 10'000);
  return spec;
}

}  // namespace drun::test
