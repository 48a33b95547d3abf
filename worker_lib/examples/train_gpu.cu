// Data-parallel training on GPUs: as train.cc, with a CUDA kernel. Every rank trains on its share of
// the samples on its GPU, and one all_reduce per step sums the gradients in place.
//
//     drun --standalone --nproc_per_node=gpu ./train_gpu
//
//     step   0  loss 1.5565  accuracy  31.2 %
//     ...
//     step 100  loss 0.0139  accuracy  99.9 %
//     2 ranks on GPUs, 100 steps, 1200 samples: accuracy 99.9 %
//     all ranks have identical weights; a run on the CPU differs by at most 1e-13
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "drun/process_group.h"
#include "drun/record.h"

namespace {

using Numbers = std::vector<double>;

constexpr int kSamples = 1200;
constexpr int kSteps = 100;
constexpr int kHidden = 16;
constexpr int kWeights = 4 * kHidden + 1;  // of hidden unit h: 2 inputs, bias, output; then a bias
constexpr int kSums = kWeights + 2;        // the gradient, loss and hits
constexpr int kThreads = 128;
constexpr double kTolerance = 1e-8;  // sums in another order, and other tanh, round differently

struct Sample {
  double x = 0, y = 0;
  double label = 0;  // 0: upper moon, 1: lower moon
};

// On the GPU many threads add to the same sum.
__host__ __device__ void add(double& sum, double number) {
#ifdef __CUDA_ARCH__
  atomicAdd(&sum, number);
#else
  sum += number;
#endif
}

// Adds one sample's gradient, loss and hit to `sums`.
__host__ __device__ void learn(const double* weights, const Sample& sample, double* sums) {
  double activity[kHidden];
  double output = weights[kWeights - 1];
  for (int h = 0; h < kHidden; ++h) {
    const double* w = weights + 4 * h;
    activity[h] = tanh(w[0] * sample.x + w[1] * sample.y + w[2]);
    output += w[3] * activity[h];
  }
  const double probability = 1 / (1 + exp(-output));
  const double error = probability - sample.label;
  for (int h = 0; h < kHidden; ++h) {
    const double back = error * weights[4 * h + 3] * (1 - activity[h] * activity[h]);
    double* sum = sums + 4 * h;
    add(sum[0], back * sample.x);
    add(sum[1], back * sample.y);
    add(sum[2], back);
    add(sum[3], error * activity[h]);
  }
  add(sums[kWeights - 1], error);
  add(sums[kWeights], -log(sample.label > 0.5 ? probability : 1 - probability));
  add(sums[kWeights + 1], fabs(error) < 0.5 ? 1.0 : 0.0);
}

__host__ __device__ void move(double& weight, double& velocity, double sum) {
  velocity = 0.9 * velocity - 0.5 * sum / kSamples;
  weight += velocity;
}

// A thread for each sample; a block adds up in its own memory first.
__global__ void learn_all(const double* weights, const Sample* samples, int count, double* sums) {
  __shared__ double own[kSums];
  for (int i = threadIdx.x; i < kSums; i += blockDim.x) own[i] = 0;
  __syncthreads();
  const int s = blockIdx.x * blockDim.x + threadIdx.x;
  if (s < count) learn(weights, samples[s], own);
  __syncthreads();
  for (int i = threadIdx.x; i < kSums; i += blockDim.x) add(sums[i], own[i]);
}

__global__ void move_all(double* weights, double* velocity, const double* sums) {
  for (int i = threadIdx.x; i < kWeights; i += blockDim.x) move(weights[i], velocity[i], sums[i]);
}

void must(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(result));
}

// A copy on the GPU that is current.
template <typename T>
std::shared_ptr<T> on_gpu(const std::vector<T>& from) {
  T* data = nullptr;
  must(cudaMalloc(&data, from.size() * sizeof(T)), "cudaMalloc");
  const std::shared_ptr<T> owner(data, [](T* memory) { cudaFree(memory); });
  must(cudaMemcpy(data, from.data(), from.size() * sizeof(T), cudaMemcpyDefault), "cudaMemcpy");
  return owner;
}

Numbers read(const double* from, std::size_t count) {
  Numbers copy(count);
  must(cudaMemcpy(copy.data(), from, count * sizeof(double), cudaMemcpyDefault), "cudaMemcpy");
  return copy;
}

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
    const double* n = &noise[3 * i];
    const double angle = 1.5708 * (n[0] + 1);
    const bool is_lower = i % 2 == 1;
    const double x = is_lower ? 1 - std::cos(angle) : std::cos(angle);
    const double y = is_lower ? 0.5 - std::sin(angle) : std::sin(angle);
    samples.push_back({x + 0.2 * n[1], y + 0.2 * n[2], is_lower ? 1.0 : 0.0});
  }
  return samples;
}

// Returns the weights in the end, and the sums that the last step began with.
std::pair<Numbers, Numbers> train(drun::ProcessGroup& group, const Numbers& first, int gpu) {
  const std::vector<Sample> share = share_of(group.rank(), group.size());
  const int count = static_cast<int>(share.size());
  const auto samples = on_gpu(share);
  const auto weights = on_gpu(first);
  const auto velocity = on_gpu(Numbers(kWeights));
  const auto sums = on_gpu(Numbers(kSums));
  for (int step = 0; step <= kSteps; ++step) {
    must(cudaMemsetAsync(sums.get(), 0, kSums * sizeof(double)), "cudaMemsetAsync");
    const int blocks = (count + kThreads - 1) / kThreads;
    if (blocks > 0)
      learn_all<<<blocks, kThreads>>>(weights.get(), samples.get(), count, sums.get());
    must(cudaGetLastError(), "learn_all");
    group.all_reduce(drun::device_elements(sums.get(), kSums, gpu));  // after the kernel
    if (step < kSteps) move_all<<<1, kThreads>>>(weights.get(), velocity.get(), sums.get());
    must(cudaGetLastError(), "move_all");
    if (group.rank() != 0 || step % 20 != 0) continue;
    const Numbers now = read(sums.get(), kSums);
    std::printf("step %3d  loss %.4f  accuracy %5.1f %%\n", step, now[kWeights] / kSamples,
                100 * now[kWeights + 1] / kSamples);
    std::fflush(stdout);
  }
  return {read(weights.get(), kWeights), read(sums.get(), kSums)};
}

// The same on the CPU, alone.
Numbers trained_alone(Numbers weights) {
  const std::vector<Sample> samples = share_of(0, 1);
  Numbers velocity(kWeights);
  for (int step = 0; step < kSteps; ++step) {
    Numbers sums(kSums);
    for (const Sample& sample : samples) learn(weights.data(), sample, sums.data());
    for (int i = 0; i < kWeights; ++i) move(weights[i], velocity[i], sums[i]);
  }
  return weights;
}

void check_identical(drun::ProcessGroup& group, const Numbers& weights) {
  Numbers lowest = weights;
  Numbers highest = weights;
  group.all_reduce(lowest, drun::ReduceOp::Min);  // memory of the host: not over NCCL
  group.all_reduce(highest, drun::ReduceOp::Max);
  if (lowest != highest) throw std::runtime_error("the ranks ended with different weights");
}

void run() {
  int gpus = 0;
  must(cudaGetDeviceCount(&gpus), "no GPU to train on");
  drun::ProcessGroup group = drun::init_process_group();
  const int gpu = group.local_rank() % gpus;
  must(cudaSetDevice(gpu), "cudaSetDevice");
  const Numbers first = random_numbers(kWeights, 1);
  const auto [weights, sums] = train(group, first, gpu);
  check_identical(group, weights);
  if (group.rank() == 0) {
    const Numbers alone = trained_alone(first);
    double difference = 0;
    for (int i = 0; i < kWeights; ++i) {
      difference = std::max(difference, std::abs(weights[i] - alone[i]));
    }
    if (!(difference <= kTolerance)) throw std::runtime_error("a run on the CPU ends elsewhere");
    std::printf("%d ranks on GPUs, %d steps, %d samples: accuracy %.1f %%\n", group.size(), kSteps,
                kSamples, 100 * sums[kWeights + 1] / kSamples);
    std::printf("all ranks have identical weights; a run on the CPU differs by at most %.0e\n",
                difference);
  }
  group.barrier();
}

}  // namespace

int main() { return drun::record(run); }
