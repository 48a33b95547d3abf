// edge. Numbers that operations are timed on: in memory of the host, in a segment that the ranks of
// a node share, or on a GPU.
//
// Owner:   a Buffer its memory; the group outlives it.
// Thread:  any, one at a time.
// Errors:  std::runtime_error for a number that is not what it should be, BackendFailure for what
//          the GPU's driver refuses, std::bad_alloc.
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
  // Absent: the host's.
  std::shared_ptr<const worker::Gpu> gpu = nullptr;
  std::shared_ptr<const worker::OwnStream> stream =
      nullptr;  // of the GPU; operations come after it
};

// Of this rank, which has the GPU that the backend nccl gives it: by its local rank.
Place place_for(const Options& options, const ProcessGroup& group);
std::string to_string(const Place& place);  // "cpu", "cuda:0"

class Buffer {
 public:
  // All zero. With alloc_shared a collective.
  Buffer(ProcessGroup& group, const Place& place, std::size_t count, DataType type);

  Elements all() const { return {data(), count_, type_, gpu_number(), stream()}; }
  Elements none() const { return {nullptr, 0, type_, gpu_number(), stream()}; }

  using Value = std::function<double(std::size_t place)>;
  // Done, also on a GPU, when it returns.
  void fill(const Value& value) const;
  // Throws unless each number is what the type holds of that value.
  void check(const Value& value) const;
  // The first number, of a buffer of F64.
  double first() const;

 private:
  void* data() const { return on_gpu_ ? on_gpu_->data() : on_host_.get(); }
  std::optional<int> gpu_number() const;
  void* stream() const { return place_.stream ? place_.stream->get() : nullptr; }
  std::size_t size_bytes() const;

  const Place place_;
  const std::size_t count_;
  const DataType type_;
  // One of the two.
  std::shared_ptr<void> on_host_;
  std::unique_ptr<worker::GpuMemory> on_gpu_;
};

}  // namespace drun::perf
