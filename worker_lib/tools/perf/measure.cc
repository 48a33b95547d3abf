#include "worker_lib/tools/perf/measure.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "worker_lib/math/with_type.h"
#include "worker_lib/nccl/library.h"

namespace drun::perf {
namespace {

using worker::with_type;
using Value = std::function<double(std::size_t place)>;

// --- Buffers

// As the type holds it: integers wrap around, short floats round.
template <typename T>
T held(double value) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<std::int64_t>(value));
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(value);
  if constexpr (std::is_class_v<T>) return T(static_cast<float>(value));
}

// Numbers of any type, at `memory`.
void write_all(void* memory, std::size_t count, DataType type, const Value& value) {
  with_type(type, [&](auto sample) {
    using T = decltype(sample);
    T* const numbers = static_cast<T*>(memory);
    for (std::size_t i = 0; i < count; ++i) numbers[i] = held<T>(value(i));
  });
}

void check_all(const void* memory, std::size_t count, DataType type, const Value& value) {
  with_type(type, [&](auto sample) {
    using T = decltype(sample);
    const T* const numbers = static_cast<const T*>(memory);
    for (std::size_t i = 0; i < count; ++i) {
      if (numbers[i] == held<T>(value(i))) continue;
      throw std::runtime_error("wrong result: number " + std::to_string(i) + " of " +
                               std::to_string(count) + " should be " + std::to_string(value(i)));
    }
  });
}

// Memory for timed operations: of the host, of a segment that the ranks of a node share, or of a
// GPU. The group outlives it.
class Buffer {
 public:
  // Initially zero. A collective if it uses alloc_shared.
  Buffer(ProcessGroup& group, const Place& place, std::size_t count, DataType type)
      : place_(place), count_(count), type_(type) {
    const std::size_t bytes = std::max<std::size_t>(size_bytes(), 1);
    if (place_.gpu) {
      on_gpu_ = std::make_unique<worker::GpuMemory>(place_.gpu, bytes);
      fill([](std::size_t) { return 0; });
      return;
    }
    on_host_ = place_.is_shared ? group.alloc_shared(bytes)
                                : std::shared_ptr<void>(std::malloc(bytes), &std::free);
    if (!on_host_) throw std::bad_alloc();
    std::memset(on_host_.get(), 0, bytes);
  }

  Elements all() const { return {data(), count_, type_, gpu_number(), stream()}; }
  Elements none() const { return {nullptr, 0, type_, gpu_number(), stream()}; }

  // Done when it returns, also on a GPU.
  void fill(const Value& value) const {
    if (!on_gpu_) return write_all(on_host_.get(), count_, type_, value);
    std::vector<char> copy(size_bytes());
    write_all(copy.data(), count_, type_, value);
    on_gpu_->write(copy.data(), copy.size());
  }
  // Throws unless each number is that value, converted to the type.
  void check(const Value& value) const {
    if (!on_gpu_) return check_all(on_host_.get(), count_, type_, value);
    std::vector<char> copy(size_bytes());
    on_gpu_->read(copy.data(), copy.size());
    check_all(copy.data(), count_, type_, value);
  }
  // The first number of a buffer of F64.
  double first() const {
    assert(type_ == DataType::F64 && count_ > 0);
    double number = 0;
    if (on_gpu_) {
      on_gpu_->read(&number, sizeof number);
    } else {
      std::memcpy(&number, on_host_.get(), sizeof number);
    }
    return number;
  }

 private:
  void* data() const { return on_gpu_ ? on_gpu_->data() : on_host_.get(); }
  std::optional<int> gpu_number() const {
    return place_.gpu ? std::optional<int>(place_.gpu->number()) : std::nullopt;
  }
  void* stream() const { return place_.stream ? place_.stream->get() : nullptr; }
  std::size_t size_bytes() const { return count_ * drun::size_bytes(type_); }

  const Place place_;
  const std::size_t count_;
  const DataType type_;
  // One of the two is set.
  std::shared_ptr<void> on_host_;
  std::unique_ptr<worker::GpuMemory> on_gpu_;
};

// --- Trials: one operation at one size with its memory, which is the unit of timing

struct Trial {
  std::function<void()> fill{};
  std::function<Work(const OpOptions&)> run{};
  std::function<void()> check{};
  std::size_t count = 0;  // elements in `bytes`
  bool takes_async_op = true;
  double bus_factor = 1;
};

// The input of a rank at an index: so small that no type rounds a product or sum of a few ranks.
int brought(int rank, std::size_t place) {
  return 1 + static_cast<int>((static_cast<std::size_t>(rank) + place) % 2);
}

double combined(ReduceOp op, double left, double right) {
  const auto bits = [left, right](auto action) {
    return static_cast<double>(action(static_cast<long>(left), static_cast<long>(right)));
  };
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Avg:
      return left + right;
    case ReduceOp::Product:
      return left * right;
    case ReduceOp::Min:
      return std::min(left, right);
    case ReduceOp::Max:
      return std::max(left, right);
    case ReduceOp::Band:
      return bits([](long a, long b) { return a & b; });
    case ReduceOp::Bor:
      return bits([](long a, long b) { return a | b; });
    case ReduceOp::Bxor:
      return bits([](long a, long b) { return a ^ b; });
  }
  return 0;
}

double reduced(ReduceOp op, int size, std::size_t place) {
  double result = brought(0, place);
  for (int rank = 1; rank < size; ++rank) result = combined(op, result, brought(rank, place));
  return op == ReduceOp::Avg ? result / size : result;
}

// Of about this number of bytes, counted as in measure.h. A collective if memory is shared.
Trial make_trial(ProcessGroup& group, const Options& options, const Place& place,
                 std::size_t bytes) {
  const std::string& name = options.operation;
  Trial trial;
  if (name == "barrier") {
    trial.fill = trial.check = [] {};
    trial.run = [&group](const OpOptions& how) { return group.barrier(how); };
    return trial;
  }
  const bool is_in_place = name == "broadcast" || name == "all_reduce" || name == "reduce";
  const bool is_message = name == "send_recv";
  // A buffer of one part of each rank, or of one part.
  const bool is_in_whole = name == "scatter" || name == "reduce_scatter" || name == "all_to_all";
  const bool is_out_whole = name == "gather" || name == "all_gather" || name == "all_to_all";
  const int rank = group.rank();
  const int size = group.size();
  const int root = options.root;
  const bool is_root = rank == root;
  const ReduceOp op = options.op;
  const std::size_t parts = is_in_place || is_message ? 1 : static_cast<std::size_t>(size);
  const std::size_t part = std::max<std::size_t>(bytes / size_bytes(options.type) / parts, 1);
  const std::size_t first = part * static_cast<std::size_t>(rank);  // of this rank's part
  const auto buffer = [&](bool is_whole) {
    return std::make_shared<Buffer>(group, place, is_whole ? part * parts : part, options.type);
  };
  const auto in = buffer(is_in_whole);
  const auto out = is_in_place ? in : buffer(is_out_whole);
  trial.count = part * parts;
  trial.bus_factor = parts == 1 ? 1 : static_cast<double>(size - 1) / size;
  trial.fill = [=] {
    in->fill([=](std::size_t i) { return brought(rank, i); });
    if (out != in) out->fill([](std::size_t) { return 0; });
  };
  const auto set = [&](auto run, Value expected) {
    trial.run = std::move(run);
    trial.check = [out, expected = std::move(expected)] { out->check(expected); };
  };
  // The parts of all ranks in a row.
  const auto gathered = [=](std::size_t i) {
    return brought(static_cast<int>(i / part), i % part);
  };
  if (name == "broadcast") {
    set([=, &group](const OpOptions& how) { return group.broadcast(in->all(), root, how); },
        [=](std::size_t i) { return brought(root, i); });
  } else if (name == "all_reduce") {
    trial.bus_factor = 2.0 * (size - 1) / size;
    set([=, &group](const OpOptions& how) { return group.all_reduce(in->all(), op, how); },
        [=](std::size_t i) { return reduced(op, size, i); });
  } else if (name == "reduce") {
    set([=, &group](const OpOptions& how) { return group.reduce(in->all(), root, op, how); },
        [=](std::size_t i) { return is_root ? reduced(op, size, i) : brought(rank, i); });
  } else if (name == "gather") {
    set(
        [=, &group](const OpOptions& how) {
          return group.gather(in->all(), is_root ? out->all() : out->none(), root, how);
        },
        [=](std::size_t i) { return is_root ? gathered(i) : 0; });
  } else if (name == "all_gather") {
    set([=, &group](const OpOptions& how) { return group.all_gather(in->all(), out->all(), how); },
        gathered);
  } else if (name == "scatter") {
    set(
        [=, &group](const OpOptions& how) {
          return group.scatter(is_root ? in->all() : in->none(), out->all(), root, how);
        },
        [=](std::size_t i) { return brought(root, first + i); });
  } else if (name == "reduce_scatter") {
    set([=, &group](
            const OpOptions& how) { return group.reduce_scatter(in->all(), out->all(), op, how); },
        [=](std::size_t i) { return reduced(op, size, first + i); });
  } else if (name == "all_to_all") {
    set([=, &group](const OpOptions& how) { return group.all_to_all(in->all(), out->all(), how); },
        [=](std::size_t i) { return brought(static_cast<int>(i / part), first + i % part); });
  } else {  // to the next rank, from the one before, one message at a time
    const int next = (rank + 1) % size;
    const int before = (rank + size - 1) % size;
    trial.takes_async_op = false;
    set(
        [=, &group](const OpOptions&) {
          const Work sent = group.send(in->all(), next, async_op);
          group.recv(out->all(), before);
          sent.wait();
          return Work();
        },
        [=](std::size_t i) { return brought(before, i); });
  }
  return trial;
}

// --- Timing

using Clock = std::chrono::steady_clock;

constexpr int kBlocks = 15;
constexpr int kGuesses = 5;
constexpr double kMostTimes = 1e6;
// Under way at once; more say nothing new.
constexpr double kMostInARow = 1e4;

// A group, and where its numbers are.
struct Bench {
  ProcessGroup& group;
  const Place& place;

  bool is_in_a_row(const Trial& trial) const { return place.gpu && trial.takes_async_op; }
};

void run_in_a_row(const Trial& trial, int times, std::vector<Work>& under_way) {
  for (int i = 0; i < times; ++i) under_way.push_back(trial.run(async_op));
  for (const Work& work : under_way) work.wait();
}

double seconds_of(const Bench& bench, const Trial& trial, int times) {
  std::vector<Work> under_way;
  const bool is_in_a_row = bench.is_in_a_row(trial);
  if (is_in_a_row) under_way.reserve(static_cast<std::size_t>(times));
  bench.group.barrier();
  const Clock::time_point start = Clock::now();
  if (is_in_a_row) {
    run_in_a_row(trial, times, under_way);
  } else {
    for (int i = 0; i < times; ++i) trial.run({});
  }
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// In-place operations change what the next one starts from, so a result that is checked starts from
// fresh numbers, and is not timed.
void run_checked(const Trial& trial) {
  trial.fill();
  trial.run({});
  trial.check();
}

// Agreed upon by all ranks: they must run as many.
double largest(const Bench& bench, double value) {
  const Buffer one(bench.group, {.gpu = bench.place.gpu, .stream = bench.place.stream}, 1,
                   DataType::F64);
  one.fill([value](std::size_t) { return value; });
  bench.group.all_reduce(one.all(), ReduceOp::Max);
  return one.first();
}

// Of one operation, about: the least of a few, as one that is disturbed would have hardly any fit
// into a block.
double seconds_of_one(const Bench& bench, const Trial& trial) {
  double least = seconds_of(bench, trial, 2);
  for (int i = 1; i < kGuesses; ++i) least = std::min(least, seconds_of(bench, trial, 2));
  return largest(bench, least / 2);
}

double median_seconds(const Bench& bench, const Trial& trial, double budget) {
  const double once = seconds_of_one(bench, trial);
  const double most = bench.is_in_a_row(trial) ? kMostInARow : kMostTimes;
  const double for_block = budget / kBlocks;
  const int times = static_cast<int>(std::clamp(for_block / std::max(once, 1e-8), 1.0, most));
  std::vector<double> seconds;
  seconds.reserve(kBlocks);
  for (int i = 0; i < kBlocks; ++i) {
    seconds.push_back(seconds_of(bench, trial, times) / times);
    run_checked(trial);
  }
  std::nth_element(seconds.begin(), seconds.begin() + kBlocks / 2, seconds.end());
  return largest(bench, seconds[kBlocks / 2]);
}

}  // namespace

Place place_for(const Options& options, const ProcessGroup& group) {
  if (!options.is_on_gpu) return {.is_shared = options.is_shared};
  Place place;
  place.gpu = std::make_shared<worker::Gpu>(group.local_rank() % worker::gpu_count());
  place.stream = std::make_shared<worker::OwnStream>(place.gpu);
  return place;
}

std::string to_string(const Place& place) {
  return place.gpu ? "cuda:" + std::to_string(place.gpu->number()) : "cpu";
}

Measured measure(ProcessGroup& group, const Options& options, const Place& place,
                 std::size_t bytes) {
  const Trial trial = make_trial(group, options, place, bytes);
  run_checked(trial);
  const double seconds = median_seconds({group, place}, trial, options.seconds);
  Measured result{.bytes = trial.count * size_bytes(options.type), .count = trial.count};
  result.time_us = seconds * 1e6;
  result.algbw_gbs = static_cast<double>(result.bytes) / seconds / 1e9;
  result.busbw_gbs = result.algbw_gbs * trial.bus_factor;
  return result;
}

}  // namespace drun::perf
