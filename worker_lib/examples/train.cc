// Data-parallel training: every rank learns from its own share of the samples, and all average
// their gradients with one all_reduce a step. A small network tells two interleaved half-moons
// apart.
//
//     drun --standalone --nproc_per_node=4 ./train
//
//     step   0  loss 1.5565  accuracy  31.2 %
//     step  20  loss 0.1681  accuracy  92.6 %
//     ...
//     step 100  loss 0.0139  accuracy  99.9 %
//     4 ranks, 100 steps, 1200 samples: accuracy 99.9 %
//     all ranks have identical weights; a run in one process differs by at most 1e-14
//
//     train [--checkpoint FILE] [--steps N, 100] [--step-ms N, 0]
//
// With a checkpoint, which all nodes must see, rank 0 saves every tenth step, and a new
// round continues from there, with any number of ranks. A step takes at least so many
// milliseconds, as those of larger networks do.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iomanip>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "drun/process_group.h"
#include "drun/record.h"

namespace {

using Numbers = std::vector<double>;

constexpr int kSamples = 1200;
constexpr int kHidden = 16;
constexpr int kWeights = 4 * kHidden + 1;  // of hidden unit h: 2 inputs, bias, output; then a bias
constexpr double kTolerance = 1e-9;        // sums in another order round differently

struct Sample {
  double x = 0, y = 0;
  double label = 0;  // 0: upper moon, 1: lower moon
};

// Numbers from -1 to 1; the same everywhere for one seed.
Numbers random_numbers(std::size_t count, unsigned seed) {
  std::mt19937 bits(seed);
  Numbers numbers(count);
  for (double& number : numbers) number = static_cast<double>(bits()) / 2147483647.5 - 1;
  return numbers;
}

// Sample i belongs to rank i % size.
std::vector<Sample> share_of(int rank, int size) {
  const Numbers noise = random_numbers(3 * kSamples, 7);
  std::vector<Sample> samples;
  for (int i = rank; i < kSamples; i += size) {
    const double* n = &noise[static_cast<std::size_t>(3 * i)];
    const double angle = 1.5708 * (n[0] + 1);
    const bool is_lower = i % 2 == 1;
    const double x = is_lower ? 1 - std::cos(angle) : std::cos(angle);
    const double y = is_lower ? 0.5 - std::sin(angle) : std::sin(angle);
    samples.push_back({x + 0.2 * n[1], y + 0.2 * n[2], is_lower ? 1.0 : 0.0});
  }
  return samples;
}

// Adds one sample's gradient, loss and hit to `sums` (kWeights + 2 numbers).
void learn(const Numbers& weights, const Sample& sample, Numbers& sums) {
  double activity[kHidden];
  double output = weights[kWeights - 1];
  for (std::size_t h = 0; h < kHidden; ++h) {
    const double* w = &weights[4 * h];
    activity[h] = std::tanh(w[0] * sample.x + w[1] * sample.y + w[2]);
    output += w[3] * activity[h];
  }
  const double probability = 1 / (1 + std::exp(-output));
  const double error = probability - sample.label;
  for (std::size_t h = 0; h < kHidden; ++h) {
    const double back = error * weights[4 * h + 3] * (1 - activity[h] * activity[h]);
    double* sum = &sums[4 * h];
    sum[0] += back * sample.x;
    sum[1] += back * sample.y;
    sum[2] += back;
    sum[3] += error * activity[h];
  }
  sums[kWeights - 1] += error;
  sums[kWeights] -= std::log(sample.label > 0.5 ? probability : 1 - probability);
  sums[kWeights + 1] += std::abs(error) < 0.5 ? 1 : 0;
}

struct Options {
  std::string checkpoint;
  int steps = 100;
  std::chrono::milliseconds step_time{0};
};

Options options_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--checkpoint")
      options.checkpoint = argv[i + 1];
    else if (name == "--steps")
      options.steps = std::stoi(argv[i + 1]);
    else if (name == "--step-ms")
      options.step_time = std::chrono::milliseconds(std::stoi(argv[i + 1]));
    else
      throw std::invalid_argument("unknown option " + name);
  }
  if (argc % 2 == 0) throw std::invalid_argument(std::string("no value for ") + argv[argc - 1]);
  return options;
}

// The state of a run: the next step, the weights, and their momentum.
struct Model {
  int step = 0;
  Numbers weights;
  Numbers velocity = Numbers(kWeights);
};

void save(const Model& model, const std::string& path) {
  {
    std::ofstream file(path + ".new");
    file << std::setprecision(17) << model.step;
    for (const Numbers* numbers : {&model.weights, &model.velocity})
      for (const double number : *numbers) file << ' ' << number;
    if (!file.flush()) throw std::runtime_error("cannot write " + path + ".new");
  }
  // There is a whole checkpoint at any moment.
  if (std::rename((path + ".new").c_str(), path.c_str()) != 0)
    throw std::runtime_error("cannot put the new checkpoint in the place of " + path);
}

void load(Model& model, const std::string& path) {
  std::ifstream file(path);
  if (!file) return;  // the first round
  file >> model.step;
  for (Numbers* numbers : {&model.weights, &model.velocity})
    for (double& number : *numbers) file >> number;
  if (!file) throw std::runtime_error(path + " is not a checkpoint");
}

// `add_up` makes the sums of this share into those of all samples; `report` hears how it goes.
using AddUp = std::function<void(Numbers& sums)>;
using Report = std::function<void(double loss, double accuracy)>;

void train(Model& model, int steps, const std::vector<Sample>& share, const AddUp& add_up,
           const Report& report) {
  for (; model.step <= steps; ++model.step) {
    Numbers sums(kWeights + 2);
    for (const Sample& sample : share) learn(model.weights, sample, sums);
    add_up(sums);
    report(sums[kWeights] / kSamples, sums[kWeights + 1] / kSamples);
    for (std::size_t i = 0; i < kWeights && model.step < steps; ++i) {
      model.velocity[i] = 0.9 * model.velocity[i] - 0.5 * sums[i] / kSamples;
      model.weights[i] += model.velocity[i];
    }
  }
}

// All ranks start from the state of rank 0.
void share_model(drun::ProcessGroup& group, Model& model) {
  group.broadcast(model.step, 0);
  for (Numbers* numbers : {&model.weights, &model.velocity}) group.broadcast(*numbers, 0);
}

void check_identical(drun::ProcessGroup& group, const Numbers& weights) {
  Numbers lowest = weights;
  Numbers highest = weights;
  group.all_reduce(lowest, drun::ReduceOp::Min);
  group.all_reduce(highest, drun::ReduceOp::Max);
  if (lowest != highest) throw std::runtime_error("the ranks ended with different weights");
}

double difference_to_one_process(Model model, int steps, const Numbers& weights) {
  train(
      model, steps, share_of(0, 1), [](Numbers&) {}, [](double, double) {});
  double most = 0;
  for (std::size_t i = 0; i < kWeights; ++i) {
    most = std::max(most, std::abs(weights[i] - model.weights[i]));
  }
  return most;
}

void run(const Options& options) {
  drun::ProcessGroup group = drun::init_process_group();
  const Model first{.weights = random_numbers(kWeights, 1)};
  Model model = first;
  const bool is_first = group.rank() == 0;
  if (is_first && !options.checkpoint.empty()) load(model, options.checkpoint);
  share_model(group, model);
  if (is_first && model.step > 0) std::printf("going on from step %d\n", model.step);

  double final_accuracy = 0;
  train(
      model, options.steps, share_of(group.rank(), group.size()),
      [&](Numbers& sums) {
        std::this_thread::sleep_for(options.step_time);
        group.all_reduce(sums);
      },
      [&](double loss, double accuracy) {
        final_accuracy = accuracy;
        if (!is_first) return;
        if (!options.checkpoint.empty() && model.step % 10 == 0) save(model, options.checkpoint);
        if (model.step % 20 != 0) return;
        std::printf("step %3d  loss %.4f  accuracy %5.1f %%\n", model.step, loss, 100 * accuracy);
        std::fflush(stdout);
      });

  check_identical(group, model.weights);
  if (is_first) {
    const double difference = difference_to_one_process(first, options.steps, model.weights);
    if (difference > kTolerance) throw std::runtime_error("a run in one process ends elsewhere");
    std::printf("%d ranks, %d steps, %d samples: accuracy %.1f %%\n", group.size(), options.steps,
                kSamples, 100 * final_accuracy);
    std::printf("all ranks have identical weights; a run in one process differs by at most %.0e\n",
                difference);
  }
  group.barrier();
}

}  // namespace

int main(int argc, char** argv) {
  return drun::record([&] { run(options_of(argc, argv)); });
}
