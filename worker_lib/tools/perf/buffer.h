// edge. Buffers for timed operations: in host memory, in a segment that the ranks of a node share,
// or on a GPU.
//
// Owner:   a Buffer owns its memory; the group outlives it.
// Thread:  any, one at a time.
// Errors:  std::runtime_error for a wrong number, BackendFailure for an error of the GPU's driver,
//          std::bad_alloc.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "drun/process_group.h"
#include "worker_lib/nccl/gpu.h"
#include "worker_lib/tools/perf/options.h"

namespace drun::perf {

struct Place {
  bool is_shared = false;  // memory of alloc_shared
  // Null: host memory.
  std::shared_ptr<const worker::Gpu> gpu = nullptr;
  std::shared_ptr<const worker::OwnStream> stream = nullptr;  // of the GPU; operations follow it
};

// The place of this rank. Selects the GPU like the backend nccl: by local rank.
Place place_for(const Options& options, const ProcessGroup& group);
std::string to_string(const Place& place);  // "cpu", "cuda:0"

class Buffer {
 public:
  // Initially zero. A collective if it uses alloc_shared.
  Buffer(ProcessGroup& group, const Place& place, std::size_t count, DataType type);

  Elements all() const { return {data(), count_, type_, gpu_number(), stream()}; }
  Elements none() const { return {nullptr, 0, type_, gpu_number(), stream()}; }

  using Value = std::function<double(std::size_t place)>;
  // Done when it returns, also on a GPU.
  void fill(const Value& value) const;
  // Throws unless each number is that value, converted to the type.
  void check(const Value& value) const;
  // The first number of a buffer of F64.
  double first() const;

 private:
  void* data() const { return on_gpu_ ? on_gpu_->data() : on_host_.get(); }
  std::optional<int> gpu_number() const;
  void* stream() const { return place_.stream ? place_.stream->get() : nullptr; }
  std::size_t size_bytes() const;

  const Place place_;
  const std::size_t count_;
  const DataType type_;
  // One of the two is set.
  std::shared_ptr<void> on_host_;
  std::unique_ptr<worker::GpuMemory> on_gpu_;
};

}  // namespace drun::perf
