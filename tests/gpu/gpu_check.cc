// gpu_check: what worker_lib's nccl backend does on a GPU, one step a call. scripts/gpu runs it, on
// a GPU or over the stand-ins (tests/standin).
//
//   gpu_check versions                     prints name=value lines of the GPU and the libraries
//   gpu_check STEP RANKS SECONDS [AMOUNT]  runs the step in child processes. The last line of the
//                                          output is the figure, or the reason of the failure
//   gpu_check worker STEP SECONDS [AMOUNT] one rank of the step, in a job of drun
//   gpu_check run PROGRAM [ARGUMENT...]    in a job of drun: runs the program on this rank's GPU
//
// Every rank gets one GPU of CUDA_VISIBLE_DEVICES. If there are too few, all ranks share the first
// one, as NCCL_MULTI_RANK_GPU_ENABLE permits if it is set, or else a different NCCL_HOSTID for
// each.
#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "drun/process_group.h"
#include "drun/record.h"
#include "tests/support/gpu_memory.h"
#include "tests/support/in_rank.h"
#include "tests/support/nccl_deeds.h"
#include "tests/support/ranks.h"
#include "worker_lib/nccl/library.h"
#include "worker_lib/nccl/nccl_backend.h"

namespace drun::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;
using worker::cuda::Result;
using worker::cuda::Stream;
using Words = std::vector<std::string>;

constexpr seconds kPatience{20};

struct Task {
  const Ranks& ranks;
  int rank = 0;
  int amount = 0;
  Clock::time_point end{};  // of the step's time
  const Say& say;

  bool is_last() const { return rank == ranks.size - 1; }
};

std::string in_ms(Clock::duration time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ms",
                std::chrono::duration<double, std::milli>(time).count());
  return text;
}

// A point of time that one process stores and another reads.
struct SharedTime {
  std::atomic<Clock::rep> value;
  void set_now() { value = Clock::now().time_since_epoch().count(); }
  Clock::duration until(Clock::time_point time) const {
    return time.time_since_epoch() - Clock::duration(value);
  }
};

// Shared with the processes forked later.
SharedTime& shared_time() {
  static SharedTime* const the = [] {
    void* const page = mmap(nullptr, sizeof(SharedTime), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) throw std::runtime_error("mmap failed");
    return new (page) SharedTime{};
  }();
  return *the;
}

// A function of the driver that worker_lib does not use. The driver is loaded already.
template <typename Function>
Function* driver(const char* name) {
  worker::need_cuda();
  const char* const file = std::getenv("DRUN_CUDA_LIBRARY");
  void* const library = dlopen(file == nullptr || *file == '\0' ? "libcuda.so.1" : file,
                               RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  void* const function = library == nullptr ? nullptr : dlsym(library, name);
  if (function == nullptr) throw std::runtime_error(std::string("the driver has no ") + name);
  return reinterpret_cast<Function*>(function);
}

void must(Result result, const char* what) {
  if (result == worker::cuda::kSuccess) return;
  throw std::runtime_error(std::string(what) + " failed: CUDA error " + std::to_string(result));
}

// The backend for both memories, which detects the end of other ranks.
ProcessGroup connect(milliseconds timeout = kPatience) {
  return ProcessGroup::connect(over(InitOptions().backend, timeout));
}

void check_sum(ProcessGroup& group, const OnGpu<int>& number) {
  number.write({group.rank() + 1});
  group.all_reduce(number.named());
  expect(number.read()[0] == group.size() * (group.size() + 1) / 2, "the sum of the ranks");
}

// A collective: whether any rank has no time left.
bool is_late(ProcessGroup& group, const OnGpu<int>& number, const Task& task) {
  number.write({Clock::now() >= task.end ? 1 : 0});
  group.all_reduce(number.named());
  return number.read()[0] > 0;
}

std::string of_all(int done, const Task& task) {
  return std::to_string(done) +
         (done < task.amount ? " (of " + std::to_string(task.amount) + ") in this time" : "");
}

// --- Steps

void load(const Task& task) {
  worker::check_nccl_is_here();
  ProcessGroup world = ProcessGroup::connect(over("nccl", kPatience));
  const OnGpu<int> number(1, 0);
  check_sum(world, number);
  constexpr std::size_t kFunctions = std::tuple_size_v<decltype(worker::kCudaSymbols)> +
                                     std::tuple_size_v<decltype(worker::kNcclSymbols)>;
  task.say(std::to_string(kFunctions) + " functions, a communicator with the config of 2.14" +
           (worker::need_nccl().split == nullptr ? ", no ncclCommSplit" : ""));
}

void collectives(const Task& task) {
  check_nccl_collectives(task.ranks, task.rank);
  task.say("every type and op: results exact");
}

void groups(const Task& task) {
  ProcessGroup world = connect();
  const OnGpu<int> number(1, 0);
  const OnGpu<int> other(1, 0);
  check_sum(world, number);
  int done = 0;
  while (done < task.amount) {
    std::optional<ProcessGroup> half = world.split(task.rank % 2, -task.rank);
    check_sum(half.value(), other);
    std::optional<ProcessGroup> ends = world.new_group({world.size() - 1, 0});
    if (ends) check_sum(*ends, other);
    const std::optional<int> color = task.is_last() ? std::nullopt : std::optional<int>(7);
    std::optional<ProcessGroup> rest = world.split(color);
    const bool has_ended = is_late(world, number, task);  // at once, also without a color
    expect(rest.has_value() == color.has_value(), "a group for each color");
    if (rest) check_sum(*rest, other);
    ++done;
    if (has_ended) break;
  }
  world.barrier();
  task.say(of_all(done, task) + " times 3 groups");
}

void shared_gpu_is_rejected(const Task& task) {
  unsetenv("NCCL_HOSTID");
  unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
  const Clock::time_point began = Clock::now();
  const std::string said = error_of([] { ProcessGroup::connect(over("nccl", kPatience)); });
  expect(said.find("ranks 0 and 1 use the same GPU") != std::string::npos, said);
  expect(Clock::now() - began < seconds(10), "the refusal within 10 s");
  task.say("after " + in_ms(Clock::now() - began) + ": " + said);
}

// All ranks are in all_reduces when rank 1 is killed.
void death(const Task& task) {
  ProcessGroup world = connect();
  const OnGpu<float> numbers(std::size_t{1} << 22, 0);
  std::thread killer;
  if (task.rank == 1) {
    world.all_reduce(numbers.named());
    killer = std::thread([] {
      std::this_thread::sleep_for(milliseconds(300));
      shared_time().set_now();
      kill(getpid(), SIGKILL);
    });
  }
  try {
    while (true) world.all_reduce(numbers.named());
  } catch (const WorkerError& error) {
    const Clock::duration took = shared_time().until(Clock::now());
    expect(task.rank != 1, error.what());
    expect(error.kind() == WorkerError::Kind::PeerLost && error.peer() == 1, error.what());
    expect(took < seconds(1), "PeerLost in less than 1 s, not after " + in_ms(took));
    task.say("PeerLost after " + in_ms(took));
  }
}

void absent_rank(const Task& task) {
  constexpr milliseconds kLimit{2000};
  ProcessGroup world = connect();
  const OnGpu<int> number(1, 0);
  check_sum(world, number);
  if (task.is_last()) return std::this_thread::sleep_for(2 * kLimit);
  const Clock::time_point began = Clock::now();
  try {
    world.all_reduce(number.named(), {kLimit});
  } catch (const WorkerError& error) {
    const Clock::duration took = Clock::now() - began;
    expect(error.kind() == WorkerError::Kind::Timeout, error.what());
    expect(took < kLimit * 3 / 2, "the timeout of 2 s, not " + in_ms(took));
    return task.say("after " + in_ms(took) + ": " + error.what());
  }
  throw std::runtime_error("an all_reduce without the last rank has succeeded");
}

// Rank 1 joins the collective only after it has received the message.
void message_beside_collective(const Task& task) {
  ProcessGroup world = connect();
  const OnGpu<float> numbers(std::size_t{1} << 20, 1);
  const OnGpu<int> message(1, task.rank == 0 ? 42 : 0);
  world.all_reduce(numbers.named());
  std::string figure;
  for (const char* what : {"first message ", ", second "}) {
    const Clock::time_point began = Clock::now();
    Work work;
    if (task.rank == 0) work = world.all_reduce(numbers.named(), async_op);
    if (task.rank == 0) world.send(message.named(), 1);
    if (task.rank == 1) world.recv(message.named(), 0);
    figure += what + in_ms(Clock::now() - began);
    if (task.rank == 0) work.wait();
    if (task.rank != 0) world.all_reduce(numbers.named());
    expect(task.rank > 1 || message.read()[0] == 42, "the message");
  }
  world.barrier();
  task.say(figure);
}

void sends_before_receive(const Task& task) {
  constexpr int kMessages = 32;
  ProcessGroup world = connect();
  const OnGpu<int> number(1, 0);
  check_sum(world, number);
  std::vector<std::unique_ptr<OnGpu<int>>> messages;
  for (int i = 0; i < kMessages; ++i) {
    messages.push_back(std::make_unique<OnGpu<int>>(1000, task.rank == 0 ? i : -1));
  }
  const Clock::time_point began = Clock::now();
  std::vector<Work> works;
  if (task.rank == 0) {
    for (const auto& message : messages) works.push_back(world.send(message->named(), 1, async_op));
    task.say("32 sends return after " + in_ms(Clock::now() - began));
  } else if (task.rank == 1) {
    std::this_thread::sleep_for(milliseconds(500));
    for (int i = 0; i < kMessages; ++i) {
      const OnGpu<int>& message = *messages[static_cast<std::size_t>(i)];
      world.recv(message.named(), 0);
      expect(message.read() == std::vector<int>(1000, i), "message " + std::to_string(i));
    }
  }
  for (const Work& work : works) work.wait();
  world.barrier();
}

// Each all_reduce must wait for what its stream does 50 ms later: a function of the host, then a
// copy. The kinds of streams are ordered differently by CUDA.
void streams(const Task& task) {
  ProcessGroup world = connect();
  const OnGpu<int> number(1, 0);
  check_sum(world, number);
  const worker::Gpu gpu(0);
  const worker::Current current(gpu);
  const auto launch = driver<Result(Stream, void (*)(void*), void*)>("cuLaunchHostFunc");
  Stream blocking = nullptr;
  Stream nonblocking = nullptr;
  must(gpu.api().stream_create(&blocking, 0), "cuStreamCreate");
  must(gpu.api().stream_create(&nonblocking, worker::cuda::kStreamNonBlocking), "cuStreamCreate");
  const auto per_thread = reinterpret_cast<Stream>(2);  // CU_STREAM_PER_THREAD
  const std::vector<std::pair<std::string, Stream>> all{{"the default stream", nullptr},
                                                        {"the thread's default stream", per_thread},
                                                        {"a blocking stream", blocking},
                                                        {"a nonblocking stream", nonblocking}};
  for (const auto& [what, stream] : all) {
    number.write({0});
    const int value = task.rank + 1;
    const auto sleep = [](void*) { std::this_thread::sleep_for(milliseconds(50)); };
    must(launch(stream, sleep, nullptr), "cuLaunchHostFunc");
    must(gpu.api().copy_to_device(reinterpret_cast<worker::cuda::Address>(number.data()), &value,
                                  sizeof value, stream),
         "cuMemcpyHtoDAsync");
    world.all_reduce(device_elements(number.data(), 1, 0, stream), async_op).wait();
    expect(number.read()[0] == world.size() * (world.size() + 1) / 2, "the work before on " + what);
  }
  gpu.api().stream_destroy(blocking);
  gpu.api().stream_destroy(nonblocking);
  world.barrier();
  task.say("default, per-thread, blocking and nonblocking streams");
}

// The stream waits for an all_reduce that the last rank joins 100 ms later, and the thread does
// not.
void wait_stream(const Task& task) {
  ProcessGroup world = connect();
  const OnGpu<int> number(1, 0);
  check_sum(world, number);
  const worker::Gpu gpu(0);
  const worker::Current current(gpu);
  Stream stream = nullptr;
  must(gpu.api().stream_create(&stream, worker::cuda::kStreamNonBlocking), "cuStreamCreate");
  number.write({task.rank + 1});
  world.monitored_barrier();
  if (task.is_last()) std::this_thread::sleep_for(milliseconds(100));
  const Clock::time_point began = Clock::now();
  const Work work = world.all_reduce(number.named(), async_op);
  work.wait_stream(stream);
  const Clock::duration took = Clock::now() - began;
  int sum = 0;
  must(gpu.api().copy_to_host(&sum, reinterpret_cast<worker::cuda::Address>(number.data()),
                              sizeof sum, stream),
       "cuMemcpyDtoHAsync");
  must(gpu.api().stream_synchronize(stream), "cuStreamSynchronize");
  expect(sum == world.size() * (world.size() + 1) / 2, "the sum on the stream");
  if (!task.is_last()) expect(took < milliseconds(80), "no wait of " + in_ms(took));
  work.wait();
  gpu.api().stream_destroy(stream);
  world.barrier();
  task.say("all_reduce with async_op and wait_stream returned after " + in_ms(took));
}

// No thread waits for an operation that the last rank does not join.
void unwatched(const Task& task) {
  constexpr milliseconds kLimit{1000};
  ProcessGroup world = connect();
  const OnGpu<int> number(1, 0);
  check_sum(world, number);
  if (task.is_last()) return std::this_thread::sleep_for(3 * kLimit);
  const Clock::time_point began = Clock::now();
  const Work work = world.all_reduce(number.named(), {.timeout = kLimit, .async_op = true});
  work.wait_stream(nullptr);
  const int last = world.size() - 1;
  std::vector<int> word(1);
  std::string said;
  while (said.rfind("broken: ", 0) != 0 && Clock::now() < began + 2 * kLimit) {
    std::this_thread::sleep_for(milliseconds(10));
    said = error_of([&] { world.send(word, last, async_op); });
  }
  expect(said.find("was not done in time") != std::string::npos, said);
  task.say("after " + in_ms(Clock::now() - began) + ": " + said);
}

// Every rank exchanges 4 MB with every other one, in both directions at once.
void batch(const Task& task) {
  constexpr std::size_t kCount = std::size_t{1} << 20;
  constexpr int kTimes = 20;
  ProcessGroup world = connect();
  const OnGpu<int> number(1, 0);
  std::vector<std::unique_ptr<OnGpu<int>>> in;
  std::vector<P2POp> messages;
  const OnGpu<int> out(kCount, task.rank);
  const auto exchange = [&] {
    in.clear();
    messages.clear();
    for (int peer = 0; peer < world.size(); ++peer) {
      if (peer == task.rank) continue;
      in.push_back(std::make_unique<OnGpu<int>>(kCount, -1));
      messages.push_back(P2POp::send(out.named(), peer));
      messages.push_back(P2POp::recv(in.back()->named(), peer));
    }
    wait_all(batch_isend_irecv(world, messages));
    std::size_t at = 0;
    for (int peer = 0; peer < world.size(); ++peer) {
      if (peer == task.rank) continue;
      expect(in[at++]->read() == std::vector<int>(kCount, peer), "the message of each rank");
    }
  };
  exchange();  // before the first collective: over the communicators of pairs
  check_sum(world, number);
  exchange();  // over the group's communicator
  const Clock::time_point began = Clock::now();
  for (int i = 0; i < kTimes; ++i) wait_all(batch_isend_irecv(world, messages));
  const Clock::duration took = (Clock::now() - began) / kTimes;
  world.barrier();
  task.say("4 MB in each direction: " + in_ms(took));
}

// NCCL connects in init.
void device(const Task& task) {
  InitOptions options = over(InitOptions().backend, kPatience);
  options.device = 0;
  const Clock::time_point began = Clock::now();
  ProcessGroup world = ProcessGroup::connect(options);
  const Clock::duration init = Clock::now() - began;
  const OnGpu<int> number(1, 0);
  number.write({task.rank + 1});
  const Clock::time_point first = Clock::now();
  world.all_reduce(number.named());
  const Clock::duration took = Clock::now() - first;
  expect(number.read()[0] == world.size() * (world.size() + 1) / 2, "the sum");
  options.device = worker::gpu_count();
  const std::string said = error_of([&] { ProcessGroup::connect(options); });
  expect(said.find("there is no GPU ") != std::string::npos, said);
  world.barrier();
  task.say("init took " + in_ms(init) + ", the first all_reduce " + in_ms(took));
}

// worker_lib rejects a captured stream, which must leave the capture and the group usable.
// Operations on other streams work meanwhile.
void graph(const Task& task) {
  ProcessGroup world = connect();
  const OnGpu<int> number(1, 0);
  check_sum(world, number);
  const worker::Gpu gpu(0);
  const worker::Current current(gpu);
  Stream stream = nullptr;
  must(gpu.api().stream_create(&stream, worker::cuda::kStreamNonBlocking), "cuStreamCreate");
  constexpr int kGlobal = 0;  // CU_STREAM_CAPTURE_MODE_GLOBAL, the strictest
  must(driver<Result(Stream, int)>("cuStreamBeginCapture_v2")(stream, kGlobal), "the capture");
  const Elements elements = device_elements(number.data(), 1, 0, stream);
  const std::string sum = error_of([&] { world.all_reduce(elements); });
  const std::string message =
      error_of([&] { world.send(elements, (task.rank + 1) % world.size(), async_op); });
  Stream other = nullptr;
  must(gpu.api().stream_create(&other, worker::cuda::kStreamNonBlocking), "cuStreamCreate");
  for (int i = 0; i < 10; ++i) {
    world.all_reduce(device_elements(number.data(), 1, 0, other), ReduceOp::Max, async_op).wait();
  }
  void* captured = nullptr;
  must(driver<Result(Stream, void**)>("cuStreamEndCapture")(stream, &captured),
       "the end of the capture");
  if (captured != nullptr) driver<Result(void*)>("cuGraphDestroy")(captured);
  for (const std::string& said : {sum, message}) {
    expect(said.find("the stream is being captured into a CUDA graph") != std::string::npos, said);
  }
  check_sum(world, number);
  gpu.api().stream_destroy(stream);
  gpu.api().stream_destroy(other);
  world.barrier();
  task.say("works beside a capture; not supported in it: " + sum);
}

struct Resources {
  long threads = 0;
  long descriptors = 0;
  long memory_mib = 0;  // resident
  long gpu_mib = 0;     // used by all processes
};

long entries_in(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder),
                       std::filesystem::directory_iterator());
}

Resources resources() {
  const worker::Gpu gpu(0);
  const worker::Current current(gpu);
  std::size_t free = 0;
  std::size_t total = 0;
  must(driver<Result(std::size_t*, std::size_t*)>("cuMemGetInfo_v2")(&free, &total),
       "cuMemGetInfo");
  long pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return {.threads = entries_in("/proc/self/task"),
          .descriptors = entries_in("/proc/self/fd"),
          .memory_mib = pages * (sysconf(_SC_PAGESIZE) / 1024) / 1024,
          .gpu_mib = static_cast<long>((total - free) >> 20)};
}

// Once the communicators of groups that have ended are destroyed, which takes NCCL half a second.
Resources settled_resources() {
  constexpr int kLooks = 10;
  Resources now = resources();
  for (int look = 0; look < kLooks; ++look) {
    std::this_thread::sleep_for(milliseconds(700));
    const long threads = now.threads;
    now = resources();
    if (now.threads == threads) break;
  }
  return now;
}

void many_groups(const Task& task) {
  constexpr int kWarmUp = 50;  // of allocators and caches
  ProcessGroup world = connect();
  const OnGpu<int> number(1, 0);
  const OnGpu<int> other(1, 0);
  check_sum(world, number);
  std::vector<int> all(static_cast<std::size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  const auto use_one = [&] {
    std::optional<ProcessGroup> part = world.new_group(all);
    check_sum(part.value(), other);
  };
  for (int i = 0; i < kWarmUp; ++i) use_one();
  const Resources before = settled_resources();
  int done = 0;
  while (done < task.amount) {
    use_one();
    ++done;
    if (is_late(world, number, task)) break;
  }
  const Resources after = settled_resources();
  world.barrier();
  struct Row {
    const char* what;
    long before, after, tolerance;
  };
  std::string figure = of_all(done, task) + " groups";
  bool is_flat = true;
  for (const Row& row : {Row{"threads", before.threads, after.threads, 2},
                         Row{"descriptors", before.descriptors, after.descriptors, 4},
                         Row{"MiB of memory", before.memory_mib, after.memory_mib, 64},
                         Row{"MiB of the GPU", before.gpu_mib, after.gpu_mib, 64}}) {
    figure +=
        ", " + std::to_string(row.before) + " to " + std::to_string(row.after) + " " + row.what;
    is_flat = is_flat && row.after <= row.before + row.tolerance;
  }
  if (!is_flat) throw std::runtime_error("not flat: " + figure);
  task.say(figure);
}

// Rank 0 leaves the default group to the end of the process. With amount = 1, an operation is
// running that the other ranks never join.
void exit_without_destroy(const Task& task) {
  InitOptions options;
  options.timeout = kPatience;
  init_process_group(options);
  ProcessGroup world = default_group();
  static const OnGpu<int>& number = *new OnGpu<int>(1, 0);
  check_sum(world, number);
  world.barrier();
  static Work work;
  if (task.rank == 0) {
    if (task.amount == 1) work = world.all_reduce(number.named(), async_op);
    std::this_thread::sleep_for(milliseconds(100));
    shared_time().set_now();
  } else {
    std::this_thread::sleep_for(seconds(1));
  }
  std::exit(0);
}

// The last rank stays away after 50 all_reduces, in the first round of the job.
void hang(const Task& task) {
  if (get_restart_count() > 0) return;
  ProcessGroup world = connect(seconds(300));
  const OnGpu<int> number(1, 0);
  for (int i = 0;; ++i) {
    while (i == 50 && task.is_last()) pause();
    check_sum(world, number);
  }
}

struct Step {
  const char* name;
  std::function<void(const Task&)> body;
  std::optional<int> killed = std::nullopt;  // the rank that is killed
  bool is_timed_end = false;  // the figure is the time from shared_time() to the end of rank 0
};

const std::vector<Step>& steps() {
  static const std::vector<Step> the{
      {"load", load},
      {"collectives", collectives},
      {"messages",
       [](const Task& task) {
         check_nccl_messages();
         task.say("both directions at once, in order");
       }},
      {"async",
       [](const Task& task) {
         check_nccl_async();
         task.say("8 pending operations, in order");
       }},
      {"both_memories",
       [](const Task& task) {
         check_both_memories();
         task.say("each call on the backend of its memory");
       }},
      {"groups", groups},
      {"shared_gpu", shared_gpu_is_rejected},
      {"death", death, 1},
      {"absent_rank", absent_rank},
      {"message_beside_collective", message_beside_collective},
      {"sends_before_receive", sends_before_receive},
      {"streams", streams},
      {"wait_stream", wait_stream},
      {"unwatched", unwatched},
      {"batch", batch},
      {"device", device},
      {"graph", graph},
      {"many_groups", many_groups},
      {"exit_without_destroy", exit_without_destroy, std::nullopt, true},
      {"hang", hang},
  };
  return the;
}

const Step& step_named(const std::string& name) {
  for (const Step& step : steps()) {
    if (step.name == name) return step;
  }
  throw std::runtime_error("there is no step " + name);
}

// --- Placement and processes

Words visible_gpus() {
  const char* const text = std::getenv("CUDA_VISIBLE_DEVICES");
  std::istringstream list(text == nullptr || *text == '\0' ? "0" : text);
  Words gpus;
  for (std::string each; std::getline(list, each, ',');) gpus.push_back(each);
  return gpus;
}

// Called before anything loads CUDA or NCCL.
void take_gpu(int rank, int size) {
  const Words gpus = visible_gpus();
  const bool is_shared = gpus.size() < static_cast<std::size_t>(size);
  setenv("CUDA_VISIBLE_DEVICES", gpus[is_shared ? 0 : static_cast<std::size_t>(rank)].c_str(), 1);
  if (!is_shared) return;
  setenv("NCCL_MAX_CTAS", "2", 0);
  if (std::getenv("NCCL_MULTI_RANK_GPU_ENABLE") != nullptr) return;
  setenv("NCCL_HOSTID", ("rank" + std::to_string(rank)).c_str(), 1);
  for (const auto& [name, value] : environment_on_one_gpu()) setenv(name.c_str(), value.c_str(), 0);
}

int number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) throw std::runtime_error(std::string(variable) + " is not set");
  return std::atoi(text);
}

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const std::size_t begin = text.rfind('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin + 1) + 1);
}

std::string failure_of(const RankEnd& end, const Step& step, int rank) {
  const bool is_killed = step.killed == rank;
  if (is_killed ? end.signal == SIGKILL : end.exit_code == 0) return "";
  std::string reason = last_line(end.said);
  if (end.signal == SIGKILL)
    reason = "not done in time" + (reason.empty() ? "" : "; " + reason);
  else if (end.signal != 0)
    reason = "ended by signal " + std::to_string(end.signal) + " " + reason;
  return "rank " + std::to_string(rank) + ": " +
         (reason.empty() ? "exit code " + std::to_string(end.exit_code) : reason);
}

int run_step(const Step& step, int size, seconds limit, int amount) {
  const StoreProcess store;
  shared_time().set_now();
  const Ranks ranks{.size = size, .port = store.port(), .deadline = limit};
  const Clock::time_point began = Clock::now();
  const std::vector<RankEnd> ends = run_ranks(ranks, [&](int rank, const Say& say) {
    take_gpu(rank, size);
    step.body({ranks, rank, amount, began + limit * 3 / 4, say});
  });
  std::string failures;
  for (int rank = 0; rank < size; ++rank) {
    const std::string failure = failure_of(ends[static_cast<std::size_t>(rank)], step, rank);
    if (!failure.empty()) failures += (failures.empty() ? "" : "; ") + failure;
  }
  std::string figure = last_line(ends[0].said);
  if (step.is_timed_end) {
    figure = "rank 0 has ended after " + in_ms(shared_time().until(began + ends[0].took));
  }
  std::printf("%s\n", (failures.empty() ? figure : failures).c_str());
  return failures.empty() ? 0 : 1;
}

void run_worker(const Step& step, seconds limit, int amount) {
  take_gpu(number_in("LOCAL_RANK"), number_in("LOCAL_WORLD_SIZE"));
  const Ranks ranks{.size = number_in("WORLD_SIZE"),
                    .port = static_cast<std::uint16_t>(number_in("MASTER_PORT"))};
  const int rank = number_in("RANK");
  const Say say = [rank](const std::string& line) {
    if (rank == 0) std::printf("%s\n", line.c_str());
  };
  step.body({ranks, rank, amount, Clock::now() + limit * 3 / 4, say});
}

[[noreturn]] void run_program(const Words& words) {
  take_gpu(number_in("LOCAL_RANK"), number_in("LOCAL_WORLD_SIZE"));
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  throw std::runtime_error("cannot run " + words[0]);
}

void print_versions() {
  worker::need_cuda();
  char name[128] = "";
  must(driver<Result(char*, int, int)>("cuDeviceGetName")(name, sizeof name, 0), "cuDeviceGetName");
  int version = 0;
  must(driver<Result(int*)>("cuDriverGetVersion")(&version), "cuDriverGetVersion");
  std::printf("gpu=%s\ngpus=%d\ncuda=%d.%d\n", name, worker::gpu_count(), version / 1000,
              version % 1000 / 10);
  std::fflush(stdout);
  worker::need_nccl().get_version(&version);
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(worker::need_nccl().get_version), &info);
  std::printf("nccl=%s\nnccl_code=%d\nnccl_file=%s\n", worker::nccl_version().c_str(), version,
              info.dli_fname == nullptr ? "" : info.dli_fname);
}

int run(const Words& words) {
  const auto number = [&words](std::size_t i) {
    return i < words.size() ? std::atoi(words[i].c_str()) : 0;
  };
  if (words.size() == 1 && words[0] == "versions") return print_versions(), 0;
  if (words.size() >= 2 && words[0] == "run") run_program({words.begin() + 1, words.end()});
  if (words.size() >= 3 && words[0] == "worker") {
    return run_worker(step_named(words[1]), seconds(number(2)), number(3)), 0;
  }
  if (words.size() >= 3 && number(1) > 0 && number(2) > 0) {
    return run_step(step_named(words[0]), number(1), seconds(number(2)), number(3));
  }
  throw std::runtime_error(
      "usage: gpu_check versions | STEP RANKS SECONDS [AMOUNT] | worker STEP SECONDS [AMOUNT] | "
      "run PROGRAM [ARGUMENT...]");
}

}  // namespace
}  // namespace drun::test

int main(int argc, char** argv) {
  return drun::record(
      [&] { return drun::test::run(std::vector<std::string>(argv + 1, argv + argc)); });
}
