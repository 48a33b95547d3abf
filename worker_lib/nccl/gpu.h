// edge. One GPU as used by this process: its primary context, streams, events, and memory that drun
// allocates.
//
// Owner:   a Gpu is shared by all objects created on it, and outlives them.
// Thread:  any. A Current makes the GPU the calling thread's current one during its lifetime.
// Errors:  BackendFailure (System) with the driver's text.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "worker_lib/nccl/abi.h"

namespace drun::worker {

class Gpu {
 public:
  // `number`: among the GPUs visible to this process.
  explicit Gpu(int number);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  int number() const { return number_; }
  const cuda::Api& api() const { return api_; }
  cuda::Context context() const { return context_; }
  // "0000:1B:00.0": the same in every process of the machine.
  std::string pci_bus_id() const;
  void must(cuda::Result result, const char* what) const;

  // An event that no one else uses, created if none was given back. Requires that the GPU is
  // current.
  cuda::Event take_event() const;
  void give_back(cuda::Event event) const noexcept;

 private:
  // As many as a group has pending operations at most: creating one takes longer than its use.
  static constexpr std::size_t kMostEvents = 16'384;

  const cuda::Api& api_;
  const int number_;
  mutable std::mutex mutex_;
  mutable std::vector<cuda::Event> events_;  // unused ones
  cuda::Device device_ = 0;
  cuda::Context context_ = nullptr;
};

// While it exists, the calling thread may also use CUDA beside a capture of a graph: a capture in
// the global mode otherwise fails if any thread queries an event or allocates memory. Costs nothing
// within another one of the same Gpu on this thread.
class Current {
 public:
  explicit Current(const Gpu& gpu);
  // For destructors: ignores failure, which is possible at the end of the program.
  Current(const Gpu& gpu, std::nothrow_t);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  void relax();

  const Gpu& gpu_;
  const Gpu* const outer_;  // of the one around it; null: none
  bool is_current_ = true;
  int capture_mode_ = cuda::kCaptureRelaxed;  // of the thread before
};

// A point in a stream. Empty after being moved from.
class Event {
 public:
  // The point after all work queued on `stream` so far; null: the default stream.
  Event(std::shared_ptr<const Gpu> gpu, cuda::Stream stream);
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  // Becomes a point in another stream. Streams that wait for the earlier one keep waiting for it.
  // Requires that the GPU is current.
  void record(cuda::Stream stream);
  // Whether that work is done; throws if it failed. Requires that the GPU is current.
  bool is_reached() const;
  // Later work on the stream, which is not being captured, waits for it.
  void make_wait(cuda::Stream stream) const;

 private:
  std::shared_ptr<const Gpu> gpu_;
  cuda::Event event_ = nullptr;
};

class OwnStream {
 public:
  explicit OwnStream(std::shared_ptr<const Gpu> gpu);
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  cuda::Stream get() const { return stream_; }
  // Blocks until all queued work is done, without a deadline.
  void synchronize() const;

 private:
  std::shared_ptr<const Gpu> gpu_;
  cuda::Stream stream_ = nullptr;
};

// Memory of the GPU.
class GpuMemory {
 public:
  GpuMemory(std::shared_ptr<const Gpu> gpu, std::size_t size_bytes);
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  cuda::Address address() const { return address_; }
  void* data() const { return reinterpret_cast<void*>(address_); }

  // Copy from and to host memory on the default stream; done when they return.
  void write(const void* from, std::size_t size_bytes) const;
  void read(void* to, std::size_t size_bytes) const;

 private:
  std::shared_ptr<const Gpu> gpu_;
  cuda::Address address_ = 0;
};

// The GPU that `memory` belongs to. Absent for host memory, for managed memory (which is both), and
// if `cuda` is null.
std::optional<int> gpu_of(const cuda::Api* cuda, const void* memory);
// Throws BackendFailure (Usage) if no operation can use both. An operation on a GPU can also use
// managed memory, and memory of the host that is registered with the driver. Null: not used.
void check_same_memory(const cuda::Api* cuda, const void* input, const void* output);

// Whether work on the stream is being recorded into a CUDA graph instead of being run.
bool is_capturing(const cuda::Api* cuda, cuda::Stream stream);

}  // namespace drun::worker
