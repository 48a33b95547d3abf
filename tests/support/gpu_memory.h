// edge. GPU memory for tests, on the stand-in or on a real GPU.
//
// The functions throw BackendFailure.
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

// Makes this process load the stand-ins (tests/standin) for CUDA's driver and NCCL. Call it before
// either is loaded.
void use_standins();

// A function of a stand-in, such as "standin_events", that this process has loaded.
void* standin_symbol(const char* name);
template <typename Function>
Function* standin_function(const char* name) {
  return reinterpret_cast<Function*>(standin_symbol(name));
}

// Returns why tests on a real GPU cannot run here, as a text after "skipped: ", or an empty string.
// Checks this in a separate process.
std::string no_gpu_here();

// The environment of ranks that share the first GPU. NCCL rejects that for ranks of one host, so
// each rank also needs a different NCCL_HOSTID.
std::map<std::string, std::string> environment_on_one_gpu();

// Numbers in GPU memory.
template <typename T>
class OnGpu {
 public:
  OnGpu(std::size_t count, T value, int gpu = 0)
      : gpu_(std::make_shared<Gpu>(gpu)), count_(count), memory_(gpu_, count * sizeof(T) + 1) {
    write(std::vector<T>(count, value));
  }

  // Elements with the GPU's number.
  Elements named() const { return {memory_.data(), count_, data_type<T>(), gpu_->number()}; }
  // Elements without a GPU number, like host memory.
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

// For generic checks with host buffers: makes each call with copies on GPU 0.
CollectiveRig rig_on_gpu(Backend& backend, int rank, int size, std::function<Turn()> next_turn);

}  // namespace drun::test
