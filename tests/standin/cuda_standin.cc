// edge. A stand-in for the CUDA driver, for tests on machines without a GPU. It implements the
// functions that worker_lib uses, on host memory. A stream is a thread that runs its tasks in
// order. Only the stand-ins can access the memory at its address. Results say nothing about a real
// GPU.
//
// STANDIN_GPUS:        the number of GPUs (default 1).
// STANDIN_CAPABILITY:  the major number of the GPUs' compute capability (default 9).
// STANDIN_SHARED_GPUS: set: all processes share these GPUs; otherwise, each has its own.
#include "tests/standin/cuda_standin.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

using drun::worker::cuda::Address;
using drun::worker::cuda::Context;
using drun::worker::cuda::Device;
using drun::worker::cuda::Event;
using drun::worker::cuda::Result;
using drun::worker::cuda::Stream;

namespace {

constexpr Result kSuccess = 0;
constexpr Result kInvalidValue = 1;
constexpr Result kOutOfMemory = 2;
constexpr Result kNotInitialized = 3;
constexpr Result kDeinitialized = 4;
constexpr Result kNoDevice = 100;
constexpr Result kInvalidContext = 201;
constexpr Result kNotReady = 600;
constexpr Result kCaptureUnsupported = 900;
constexpr Result kCaptureInvalidated = 901;
constexpr int kGlobalMode = 0;
constexpr int kMostGpus = 16;
constexpr std::size_t kMemoryBytes = std::size_t{16} << 30;
const auto kPerThreadStream = reinterpret_cast<Stream>(2);
char contexts[kMostGpus];  // only their addresses are used

// Counts the pending tasks of all streams.
class Unfinished {
 public:
  void begin() {
    const std::lock_guard lock(mutex_);
    ++count_;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    if (--count_ == 0) none_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    none_.wait(lock, [this] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable none_;
  int count_ = 0;
};

Unfinished& unfinished() {
  static Unfinished& the = *new Unfinished;
  return the;
}

// A thread that runs its tasks in order.
class Queue {
 public:
  Queue() : thread_([this] { run(); }) {}
  ~Queue() {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void add(std::function<void()> task) {
    unfinished().begin();
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    wake_.notify_all();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return is_stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      unfinished().end();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool is_stopping_ = false;
  std::thread thread_;
};

// An event: how often it was recorded, and how many of these records have been reached.
struct Mark {
  std::mutex mutex;
  std::condition_variable reached;
  int recorded = 0;
  int done = 0;
};
using SharedMark = std::shared_ptr<Mark>;

// Memory of a GPU: of the pages at its address nothing can be read or written; the bytes are
// elsewhere.
struct Block {
  std::size_t size_bytes = 0;
  int gpu = 0;
  std::size_t mapped_bytes = 0;
  std::unique_ptr<char[]> bytes;
};

struct State {
  std::mutex mutex;
  bool is_initialized = false;
  std::map<Address, Block> memory;
  std::unique_ptr<Queue> default_stream;
  std::map<Stream, int> capturing;  // stream -> mode
  std::set<Stream> broken_captures;
  int events = 0;
};

State& state() {
  static State& the = *new State;
  return the;
}

int gpus() {
  const char* text = std::getenv("STANDIN_GPUS");
  return text == nullptr ? 1 : std::atoi(text);
}

// The stack of contexts on this thread, the current one last. Without a destructor, because exit
// handlers use it after the thread's other objects have ended.
struct Contexts {
  bool empty() const { return depth == 0; }
  int back() const { return gpus[depth - 1]; }
  void push_back(int gpu) { gpus[depth++] = gpu; }
  void pop_back() { --depth; }

  int gpus[16];
  std::size_t depth;
};
thread_local Contexts contexts_here;
Contexts& current() { return contexts_here; }

thread_local int capture_mode = kGlobalMode;
thread_local int context_pushes = 0;
std::atomic<bool> has_ended = false;  // the exit handlers of the driver have run

// Calls that CUDA forbids while a graph is captured, unless the thread or the capture is relaxed.
// They also break the capture.
bool breaks_capture() {
  const std::lock_guard lock(state().mutex);
  bool breaks = false;
  for (const auto& [stream, mode] : state().capturing) {
    if (capture_mode != kGlobalMode || mode != kGlobalMode) continue;
    breaks = true;
    state().broken_captures.insert(stream);
  }
  return breaks;
}

Queue& queue_of(Stream stream) {
  if (stream == kPerThreadStream) {
    thread_local Queue the;
    return the;
  }
  if (stream != nullptr) return *reinterpret_cast<Queue*>(stream);
  const std::lock_guard lock(state().mutex);
  if (!state().default_stream) state().default_stream = std::make_unique<Queue>();
  return *state().default_stream;
}

SharedMark& mark_of(Event event) { return *reinterpret_cast<SharedMark*>(event); }

// Returns the allocation that contains the whole range, or null.
const std::pair<const Address, Block>* find(Address address, std::size_t bytes) {
  auto after = state().memory.upper_bound(address);
  if (after == state().memory.begin()) return nullptr;
  --after;
  return address + bytes <= after->first + after->second.size_bytes ? &*after : nullptr;
}

Result copy(void* to, const void* from, std::size_t bytes, Stream stream) {
  if (current().empty()) return kInvalidContext;
  to = standin_bytes(to);
  from = standin_bytes(from);
  queue_of(stream).add([=] { std::memcpy(to, from, bytes); });
  return kSuccess;
}

void* pointer(Address address) { return reinterpret_cast<void*>(address); }

}  // namespace

extern "C" {

void standin_enqueue(Stream stream, void (*action)(void*), void* argument) {
  queue_of(stream).add([=] { action(argument); });
}
int standin_events() {
  const std::lock_guard lock(state().mutex);
  return state().events;
}
int standin_context_pushes() { return context_pushes; }
int standin_current_gpu() { return current().empty() ? -1 : current().back(); }
void* standin_bytes(const void* memory) {
  const std::lock_guard lock(state().mutex);
  const auto address = reinterpret_cast<Address>(memory);
  const auto* const found = find(address, 0);
  if (found == nullptr) return const_cast<void*>(memory);
  return found->second.bytes.get() + (address - found->first);
}
bool standin_is_gpu_memory(const void* memory, std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  return find(reinterpret_cast<Address>(memory), bytes) != nullptr;
}

Result cuInit(unsigned) {
  if (gpus() == 0) return kNoDevice;
  if (!state().is_initialized) std::atexit([] { has_ended = true; });
  state().is_initialized = true;
  return kSuccess;
}
Result cuGetErrorString(Result error, const char** text) {
  *text = error == kNoDevice         ? "no CUDA-capable device is detected"
          : error == kInvalidContext ? "invalid device context"
          : error == kInvalidValue   ? "invalid argument"
                                     : "an error of the stand-in's";
  return kSuccess;
}
Result cuDeviceGetCount(int* count) {
  *count = gpus();
  return kSuccess;
}
Result cuDeviceGet(Device* device, int ordinal) {
  if (ordinal < 0 || ordinal >= gpus() || ordinal >= kMostGpus) return kInvalidValue;
  *device = ordinal;
  return kSuccess;
}
Result cuDeviceGetName(char* text, int size_bytes, Device) {
  std::snprintf(text, static_cast<std::size_t>(size_bytes), "stand-in");
  return kSuccess;
}
Result cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
// Of any attribute: the major number of the compute capability.
Result cuDeviceGetAttribute(int* value, int, Device) {
  const char* text = std::getenv("STANDIN_CAPABILITY");
  *value = text == nullptr ? 9 : std::atoi(text);
  return kSuccess;
}
Result cuDeviceGetPCIBusId(char* text, int size_bytes, Device device) {
  const int domain = std::getenv("STANDIN_SHARED_GPUS") != nullptr ? 0 : getpid();
  std::snprintf(text, static_cast<std::size_t>(size_bytes), "%04x:%02x:00.0", domain, device);
  return kSuccess;
}
Result cuDevicePrimaryCtxRetain(Context* context, Device device) {
  *context = reinterpret_cast<Context>(&contexts[device]);
  return kSuccess;
}
Result cuDevicePrimaryCtxRelease_v2(Device) { return kSuccess; }
Result cuCtxPushCurrent_v2(Context context) {
  if (context == nullptr) return kInvalidContext;
  ++context_pushes;
  current().push_back(static_cast<int>(reinterpret_cast<const char*>(context) - contexts));
  return kSuccess;
}
Result cuCtxPopCurrent_v2(Context*) {
  if (current().empty()) return kInvalidContext;
  current().pop_back();
  return kSuccess;
}

Result cuStreamCreate(Stream* stream, unsigned) {
  if (current().empty()) return kInvalidContext;
  *stream = reinterpret_cast<Stream>(new Queue);
  return kSuccess;
}
Result cuStreamDestroy_v2(Stream stream) {
  if (current().empty()) return kInvalidContext;
  delete reinterpret_cast<Queue*>(stream);
  return kSuccess;
}
Result cuStreamWaitEvent(Stream stream, Event event, unsigned) {
  const SharedMark mark = mark_of(event);
  const std::lock_guard lock(mark->mutex);
  queue_of(stream).add([mark, until = mark->recorded] {
    std::unique_lock waiting(mark->mutex);
    mark->reached.wait(waiting, [&] { return mark->done >= until; });
  });
  return kSuccess;
}
Result cuStreamSynchronize(Stream stream) {
  if (current().empty()) return kInvalidContext;
  std::promise<void> done;
  queue_of(stream).add([&done] { done.set_value(); });
  done.get_future().wait();
  return kSuccess;
}

Result cuLaunchHostFunc(Stream stream, void (*action)(void*), void* argument) {
  standin_enqueue(stream, action, argument);
  return kSuccess;
}

// A stream that is being captured runs its tasks nevertheless; there are no graphs.
Result cuStreamBeginCapture_v2(Stream stream, int mode) {
  const std::lock_guard lock(state().mutex);
  state().capturing[stream] = mode;
  return kSuccess;
}
Result cuStreamIsCapturing(Stream stream, int* status) {
  const std::lock_guard lock(state().mutex);
  *status = state().capturing.count(stream) > 0 ? 1 : 0;
  return kSuccess;
}
Result cuStreamEndCapture(Stream stream, void** graph) {
  const std::lock_guard lock(state().mutex);
  *graph = nullptr;
  if (state().capturing.erase(stream) == 0) return kInvalidValue;
  return state().broken_captures.erase(stream) > 0 ? kCaptureInvalidated : kSuccess;
}
Result cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, capture_mode);
  return kSuccess;
}
Result cuGraphDestroy(void*) { return kSuccess; }

Result cuEventCreate(Event* event, unsigned) {
  if (current().empty()) return kInvalidContext;
  {
    const std::lock_guard lock(state().mutex);
    ++state().events;
  }
  *event = reinterpret_cast<Event>(new SharedMark(std::make_shared<Mark>()));
  return kSuccess;
}
Result cuEventDestroy_v2(Event event) {
  delete &mark_of(event);
  return kSuccess;
}
Result cuEventRecord(Event event, Stream stream) {
  if (current().empty()) return kInvalidContext;
  const SharedMark mark = mark_of(event);
  const std::lock_guard lock(mark->mutex);
  queue_of(stream).add([mark, number = ++mark->recorded] {
    const std::lock_guard reaching(mark->mutex);
    mark->done = number;
    mark->reached.notify_all();
  });
  return kSuccess;
}
Result cuEventQuery(Event event) {
  if (has_ended) return kDeinitialized;
  if (breaks_capture()) return kCaptureUnsupported;
  const SharedMark& mark = mark_of(event);
  const std::lock_guard lock(mark->mutex);
  return mark->done >= mark->recorded ? kSuccess : kNotReady;
}

Result cuMemAlloc_v2(Address* address, std::size_t size_bytes) {
  if (breaks_capture()) return kCaptureUnsupported;
  if (current().empty()) return kInvalidContext;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t mapped = (size_bytes / page + 1) * page;
  void* const place = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) return kOutOfMemory;
  *address = reinterpret_cast<Address>(place);
  const std::lock_guard lock(state().mutex);
  state().memory[*address] = {size_bytes, current().back(), mapped,
                              std::unique_ptr<char[]>(new char[mapped])};
  return kSuccess;
}
Result cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total_bytes) {
  const std::lock_guard lock(state().mutex);
  *total_bytes = kMemoryBytes;
  *free_bytes = kMemoryBytes;
  for (const auto& [address, block] : state().memory) *free_bytes -= block.size_bytes;
  return kSuccess;
}
// Like CUDA's, it first waits for all pending work, which may use the memory.
Result cuMemFree_v2(Address address) {
  unfinished().wait();
  const std::lock_guard lock(state().mutex);
  const auto found = state().memory.find(address);
  if (found == state().memory.end()) return kInvalidValue;
  munmap(pointer(address), found->second.mapped_bytes);
  state().memory.erase(found);
  return kSuccess;
}
Result cuMemcpyHtoDAsync_v2(Address to, const void* from, std::size_t bytes, Stream stream) {
  return copy(pointer(to), from, bytes, stream);
}
Result cuMemcpyDtoHAsync_v2(void* to, Address from, std::size_t bytes, Stream stream) {
  return copy(to, pointer(from), bytes, stream);
}
Result cuMemcpyDtoDAsync_v2(Address to, Address from, std::size_t bytes, Stream stream) {
  return copy(pointer(to), pointer(from), bytes, stream);
}
Result cuPointerGetAttribute(void* value, int attribute, Address address) {
  const std::lock_guard lock(state().mutex);
  if (!state().is_initialized) return kNotInitialized;
  const auto* const found = find(address, 0);
  if (found == nullptr) return kInvalidValue;
  namespace cuda = drun::worker::cuda;
  if (attribute == cuda::kPointerMemoryType)
    *static_cast<unsigned*>(value) = cuda::kMemoryTypeDevice;
  if (attribute == cuda::kPointerIsManaged) *static_cast<unsigned*>(value) = 0;
  if (attribute == cuda::kPointerDeviceOrdinal) *static_cast<int*>(value) = found->second.gpu;
  return kSuccess;
}

}  // extern "C"
