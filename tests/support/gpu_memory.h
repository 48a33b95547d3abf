// edge. Memory of a GPU for tests, the stand-in's or a real one's, and the stand-ins themselves.
//
// Thread:  any one.
// Errors:  BackendFailure.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "drun/backend.h"
#include "tests/support/collective_checks.h"
#include "worker_lib/nccl/gpu.h"

namespace drun::test {

// From then on this process takes the stand-ins (tests/standin) for CUDA's driver and NCCL; before
// either is loaded.
void use_standins();

// Why tests of a real GPU cannot run here, to be said after "skipped: "; empty: they can. Asks in a
// process of its own.
std::string no_gpu_here();

// The environment of ranks that share the first GPU. NCCL refuses that to ranks of one host: each
// needs an NCCL_HOSTID of its own, too.
std::map<std::string, std::string> environment_on_one_gpu();

// Numbers on a GPU.
template <typename T>
class OnGpu {
 public:
  OnGpu(std::size_t count, T value, int gpu = 0)
      : gpu_(std::make_shared<Gpu>(gpu)), count_(count), memory_(gpu_, count * sizeof(T) + 1) {
    write(std::vector<T>(count, value));
  }

  // Says where it is.
  Elements named() const { return {memory_.data(), count_, data_type<T>(), gpu_->number()}; }
  // Looks like memory of the host.
  Elements unnamed() const { return {memory_.data(), count_, data_type<T>()}; }
  T* data() const { return static_cast<T*>(memory_.data()); }

  void write(const std::vector<T>& numbers) const {
    memory_.write(numbers.data(), numbers.size() * sizeof(T));
  }
  std::vector<T> read() const {
    std::vector<T> numbers(count_);
    memory_.read(numbers.data(), count_ * sizeof(T));
    return numbers;
  }

 private:
  using Gpu = worker::Gpu;
  std::shared_ptr<const Gpu> gpu_;
  std::size_t count_;
  worker::GpuMemory memory_;
};

// For the generic checks, whose buffers are the host's: each call is made with copies on GPU 0.
CollectiveRig rig_on_gpu(Backend& backend, int rank, int size, std::function<Turn()> next_turn);

}  // namespace drun::test
