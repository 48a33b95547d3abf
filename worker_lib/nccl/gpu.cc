#include "worker_lib/nccl/gpu.h"

#include <utility>

#include "drun/backend.h"
#include "worker_lib/nccl/library.h"

namespace drun::worker {
namespace {

// Of the innermost Current of this thread.
thread_local const Gpu* current_gpu = nullptr;

}  // namespace

Gpu::Gpu(int number) : api_(need_cuda()), number_(number) {
  must(api_.device_get(&device_, number), "cuDeviceGet");
  must(api_.primary_context_retain(&context_, device_), "cuDevicePrimaryCtxRetain");
}

Gpu::~Gpu() {
  if (has_exit_begun()) return;
  {
    const Current current(*this, std::nothrow);
    for (const cuda::Event event : events_) api_.event_destroy(event);
  }
  api_.primary_context_release(device_);
}

cuda::Event Gpu::take_event() const {
  {
    const std::lock_guard lock(mutex_);
    if (!events_.empty()) {
      const cuda::Event event = events_.back();
      events_.pop_back();
      return event;
    }
  }
  cuda::Event event = nullptr;
  must(api_.event_create(&event, cuda::kEventDisableTiming), "cuEventCreate");
  return event;
}

// A stream that waits for the event keeps waiting for the work that was recorded before.
void Gpu::give_back(cuda::Event event) const noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (events_.size() < kMostEvents) return events_.push_back(event);
  }
  if (has_exit_begun()) return;
  const Current current(*this, std::nothrow);
  api_.event_destroy(event);
}

std::string Gpu::pci_bus_id() const {
  char text[32] = "";
  must(api_.device_pci_bus_id(text, sizeof text, device_), "cuDeviceGetPCIBusId");
  return text;
}

void Gpu::must(cuda::Result result, const char* what) const {
  if (result == cuda::kSuccess) return;
  throw BackendFailure(WorkerError::Kind::System, "CUDA on GPU " + std::to_string(number_) + ": " +
                                                      what + ": " + error_text(api_, result));
}

Current::Current(const Gpu& gpu) : gpu_(gpu), outer_(current_gpu) {
  if (outer_ == &gpu) return;
  gpu.must(gpu.api().context_push(gpu.context()), "cuCtxPushCurrent");
  relax();
}

Current::Current(const Gpu& gpu, std::nothrow_t) : gpu_(gpu), outer_(current_gpu) {
  if (outer_ == &gpu) return;
  is_current_ = gpu.api().context_push(gpu.context()) == cuda::kSuccess;
  relax();
}

void Current::relax() {
  gpu_.api().exchange_capture_mode(&capture_mode_);
  if (is_current_) current_gpu = &gpu_;
}

Current::~Current() {
  if (outer_ == &gpu_) return;
  current_gpu = outer_;
  gpu_.api().exchange_capture_mode(&capture_mode_);
  if (!is_current_) return;
  cuda::Context context = nullptr;
  gpu_.api().context_pop(&context);
}

Event::Event(std::shared_ptr<const Gpu> gpu, cuda::Stream stream) : gpu_(std::move(gpu)) {
  const Current current(*gpu_);
  event_ = gpu_->take_event();
  const cuda::Result result = gpu_->api().event_record(event_, stream);
  if (result == cuda::kSuccess) return;
  gpu_->give_back(event_);
  gpu_->must(result, "cuEventRecord");
}

void Event::record(cuda::Stream stream) {
  gpu_->must(gpu_->api().event_record(event_, stream), "cuEventRecord");
}

Event::~Event() {
  if (event_ != nullptr) gpu_->give_back(event_);
}

Event::Event(Event&& other) noexcept
    : gpu_(std::move(other.gpu_)), event_(std::exchange(other.event_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(gpu_, other.gpu_);
  std::swap(event_, other.event_);
  return *this;
}

bool Event::is_reached() const {
  if (has_exit_begun()) return false;
  const cuda::Result result = gpu_->api().event_query(event_);
  if (result == cuda::kErrorNotReady) return false;
  gpu_->must(result, "cuEventQuery");
  return true;
}

void Event::make_wait(cuda::Stream stream) const {
  const Current current(*gpu_);
  gpu_->must(gpu_->api().stream_wait_event(stream, event_, 0), "cuStreamWaitEvent");
}

OwnStream::OwnStream(std::shared_ptr<const Gpu> gpu) : gpu_(std::move(gpu)) {
  const Current current(*gpu_);
  gpu_->must(gpu_->api().stream_create(&stream_, cuda::kStreamNonBlocking), "cuStreamCreate");
}

OwnStream::~OwnStream() {
  if (has_exit_begun()) return;
  const Current current(*gpu_, std::nothrow);
  gpu_->api().stream_destroy(stream_);
}

void OwnStream::synchronize() const {
  const Current current(*gpu_);
  gpu_->must(gpu_->api().stream_synchronize(stream_), "cuStreamSynchronize");
}

GpuMemory::GpuMemory(std::shared_ptr<const Gpu> gpu, std::size_t size_bytes)
    : gpu_(std::move(gpu)) {
  const Current current(*gpu_);
  gpu_->must(gpu_->api().memory_allocate(&address_, size_bytes), "cuMemAlloc");
}

GpuMemory::~GpuMemory() {
  if (has_exit_begun()) return;
  const Current current(*gpu_, std::nothrow);
  gpu_->api().memory_free(address_);
}

void GpuMemory::write(const void* from, std::size_t size_bytes) const {
  if (size_bytes == 0) return;
  const Current current(*gpu_);
  const cuda::Api& api = gpu_->api();
  gpu_->must(api.copy_to_device(address_, from, size_bytes, nullptr), "cuMemcpyHtoDAsync");
  gpu_->must(api.stream_synchronize(nullptr), "cuStreamSynchronize");
}

void GpuMemory::read(void* to, std::size_t size_bytes) const {
  if (size_bytes == 0) return;
  const Current current(*gpu_);
  const cuda::Api& api = gpu_->api();
  gpu_->must(api.copy_to_host(to, address_, size_bytes, nullptr), "cuMemcpyDtoHAsync");
  gpu_->must(api.stream_synchronize(nullptr), "cuStreamSynchronize");
}

std::optional<int> gpu_of(const cuda::Api* cuda, const void* memory) {
  if (cuda == nullptr || memory == nullptr) return std::nullopt;
  const auto address = reinterpret_cast<cuda::Address>(memory);
  unsigned type = 0;
  if (cuda->pointer_get_attribute(&type, cuda::kPointerMemoryType, address) != cuda::kSuccess ||
      type != cuda::kMemoryTypeDevice) {
    return std::nullopt;  // of the host, unknown to the driver
  }
  // A boolean, of up to this width in the driver.
  unsigned is_managed = 0;
  if (cuda->pointer_get_attribute(&is_managed, cuda::kPointerIsManaged, address) ==
          cuda::kSuccess &&
      is_managed != 0) {
    return std::nullopt;
  }
  int number = 0;
  cuda->pointer_get_attribute(&number, cuda::kPointerDeviceOrdinal, address);
  return number;
}

void check_same_memory(const cuda::Api* cuda, const void* input, const void* output) {
  if (cuda == nullptr || input == nullptr || output == nullptr || input == output) return;
  const std::optional<int> gpu_of_input = gpu_of(cuda, input);
  const std::optional<int> gpu_of_output = gpu_of(cuda, output);
  if (gpu_of_input == gpu_of_output) return;
  const auto is_shared = [cuda](const void* memory, std::optional<int> gpu) {
    unsigned type = 0;
    return !gpu &&
           cuda->pointer_get_attribute(&type, cuda::kPointerMemoryType,
                                       reinterpret_cast<cuda::Address>(memory)) == cuda::kSuccess;
  };
  if (is_shared(input, gpu_of_input) || is_shared(output, gpu_of_output)) return;
  const auto place = [](std::optional<int> gpu) {
    return gpu ? "on GPU " + std::to_string(*gpu) : std::string("in memory of the host");
  };
  throw BackendFailure(WorkerError::Kind::Usage, "the input is " + place(gpu_of_input) +
                                                     ", the output " + place(gpu_of_output) +
                                                     "; copy one of them to where the other is");
}

bool is_capturing(const cuda::Api* cuda, cuda::Stream stream) {
  // The default stream cannot be captured, and the query would need a current context.
  if (cuda == nullptr || stream == nullptr) return false;
  int status = cuda::kCaptureNone;
  return cuda->stream_is_capturing(stream, &status) == cuda::kSuccess &&
         status != cuda::kCaptureNone;
}

}  // namespace drun::worker
