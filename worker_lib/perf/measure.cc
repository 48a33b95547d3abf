#include "worker_lib/perf/measure.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "worker_lib/with_type.h"

namespace drun::perf {
namespace {

using worker::with_type;
using Clock = std::chrono::steady_clock;

// What a rank brings at a place: so small that no type rounds a product or sum of a few ranks.
int brought(int rank, std::size_t place) {
  return 1 + static_cast<int>((static_cast<std::size_t>(rank) + place) % 2);
}

double combined(ReduceOp op, double left, double right) {
  const auto bits = [left, right](auto deed) {
    return static_cast<double>(deed(static_cast<long>(left), static_cast<long>(right)));
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

// As the type holds it: integers wrap around, short floats round.
template <typename T>
T held(double value) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<std::int64_t>(value));
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(value);
  if constexpr (std::is_class_v<T>) return T(static_cast<float>(value));
}

class Buffer {
 public:
  Buffer(ProcessGroup& group, bool is_shared, std::size_t count, DataType type)
      : count_(count), type_(type) {
    const std::size_t bytes = std::max<std::size_t>(count * size_bytes(type), 1);
    memory_ = is_shared ? group.alloc_shared(bytes)
                        : std::shared_ptr<void>(std::malloc(bytes), &std::free);
    if (!memory_) throw std::bad_alloc();
    std::memset(memory_.get(), 0, bytes);
  }
  Elements all() const { return {memory_.get(), count_, type_}; }
  Elements none() const { return {nullptr, 0, type_}; }

  void fill(const std::function<double(std::size_t)>& value) {
    with_type(type_, [&](auto sample) {
      using T = decltype(sample);
      T* numbers = static_cast<T*>(memory_.get());
      for (std::size_t i = 0; i < count_; ++i) numbers[i] = held<T>(value(i));
    });
  }
  void check(const std::function<double(std::size_t)>& value) const {
    with_type(type_, [&](auto sample) {
      using T = decltype(sample);
      const T* numbers = static_cast<const T*>(memory_.get());
      for (std::size_t i = 0; i < count_; ++i) {
        if (numbers[i] == held<T>(value(i))) continue;
        throw std::runtime_error("wrong result: number " + std::to_string(i) + " of " +
                                 std::to_string(count_) + " should be " + std::to_string(value(i)));
      }
    });
  }

 private:
  std::size_t count_;
  DataType type_;
  std::shared_ptr<void> memory_;
};

// One operation: how to prepare, do and check it.
struct Trial {
  std::function<void()> fill{};
  std::function<void()> run{};
  std::function<void()> check{};
  std::size_t count = 0;  // elements that make up its bytes
  double bus_factor = 1;
};

Trial trial_of_one_buffer(ProcessGroup& group, const Options& options, std::size_t count) {
  const auto data = std::make_shared<Buffer>(group, options.is_shared, count, options.type);
  const int rank = group.rank();
  const int size = group.size();
  const std::string& name = options.operation;
  Trial trial{.count = count};
  trial.fill = [=] { data->fill([=](std::size_t i) { return brought(rank, i); }); };
  if (name == "broadcast") {
    trial.run = [=, &group, root = options.root] { group.broadcast(data->all(), root); };
    trial.check = [=, root = options.root] {
      data->check([=](std::size_t i) { return brought(root, i); });
    };
  } else if (name == "all_reduce") {
    trial.run = [=, &group, op = options.op] { group.all_reduce(data->all(), op); };
    trial.check = [=, op = options.op] {
      data->check([=](std::size_t i) { return reduced(op, size, i); });
    };
    trial.bus_factor = 2.0 * (size - 1) / size;
  } else {
    trial.run = [=, &group, op = options.op, root = options.root] {
      group.reduce(data->all(), root, op);
    };
    trial.check = [=, op = options.op, root = options.root] {
      data->check(
          [=](std::size_t i) { return rank == root ? reduced(op, size, i) : brought(rank, i); });
    };
  }
  return trial;
}

// `part` elements for each rank.
Trial trial_of_parts(ProcessGroup& group, const Options& options, std::size_t part) {
  const int rank = group.rank();
  const int size = group.size();
  const std::size_t whole = part * static_cast<std::size_t>(size);
  const std::string& name = options.operation;
  const bool is_in_whole = name == "scatter" || name == "reduce_scatter" || name == "all_to_all";
  const bool is_out_whole = name == "gather" || name == "all_gather" || name == "all_to_all";
  const auto buffer = [&](bool is_whole) {
    return std::make_shared<Buffer>(group, options.is_shared, is_whole ? whole : part,
                                    options.type);
  };
  const auto in = buffer(is_in_whole);
  const auto out = buffer(is_out_whole);
  const int root = options.root;
  const ReduceOp op = options.op;
  const bool is_root = rank == root;
  Trial trial{.count = whole, .bus_factor = static_cast<double>(size - 1) / size};
  trial.fill = [=] { in->fill([=](std::size_t i) { return brought(rank, i); }); };
  const std::size_t first = part * static_cast<std::size_t>(rank);  // of this rank's part
  // What the whole of all ranks' parts looks like.
  const auto gathered = [=](std::size_t i) {
    return brought(static_cast<int>(i / part), i % part);
  };
  if (name == "gather") {
    trial.run = [=, &group] { group.gather(in->all(), is_root ? out->all() : out->none(), root); };
    trial.check = [=] {
      if (is_root) out->check(gathered);
    };
  } else if (name == "all_gather") {
    trial.run = [=, &group] { group.all_gather(in->all(), out->all()); };
    trial.check = [=] { out->check(gathered); };
  } else if (name == "scatter") {
    trial.run = [=, &group] { group.scatter(is_root ? in->all() : in->none(), out->all(), root); };
    trial.check = [=] { out->check([=](std::size_t i) { return brought(root, first + i); }); };
  } else if (name == "reduce_scatter") {
    trial.run = [=, &group] { group.reduce_scatter(in->all(), out->all(), op); };
    trial.check = [=] { out->check([=](std::size_t i) { return reduced(op, size, first + i); }); };
  } else {
    trial.run = [=, &group] { group.all_to_all(in->all(), out->all()); };
    trial.check = [=] {
      out->check(
          [=](std::size_t i) { return brought(static_cast<int>(i / part), first + i % part); });
    };
  }
  return trial;
}

// To the next rank, from the one before: half of them send first.
Trial trial_of_messages(ProcessGroup& group, const Options& options, std::size_t count) {
  const auto out = std::make_shared<Buffer>(group, options.is_shared, count, options.type);
  const auto in = std::make_shared<Buffer>(group, options.is_shared, count, options.type);
  const int rank = group.rank();
  const int next = (rank + 1) % group.size();
  const int before = (rank + group.size() - 1) % group.size();
  Trial trial{.count = count};
  trial.fill = [=] { out->fill([=](std::size_t i) { return brought(rank, i); }); };
  trial.run = [=, &group] {
    const Work sent = group.isend(out->all(), next);
    group.recv(in->all(), before);
    sent.wait();
  };
  trial.check = [=] { in->check([=](std::size_t i) { return brought(before, i); }); };
  return trial;
}

Trial trial_of(ProcessGroup& group, const Options& options, std::size_t bytes) {
  const std::size_t count = std::max<std::size_t>(bytes / size_bytes(options.type), 1);
  const std::string& name = options.operation;
  if (name == "barrier") {
    Trial trial;
    trial.fill = trial.check = [] {};
    trial.run = [&group] { group.barrier(); };
    return trial;
  }
  if (name == "send_recv") return trial_of_messages(group, options, count);
  if (name == "broadcast" || name == "reduce" || name == "all_reduce") {
    return trial_of_one_buffer(group, options, count);
  }
  return trial_of_parts(group, options,
                        std::max<std::size_t>(count / static_cast<std::size_t>(group.size()), 1));
}

double seconds_of(ProcessGroup& group, const Trial& trial, int times) {
  group.barrier();
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < times; ++i) trial.run();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Agreed upon by all ranks: they must run as many.
double largest(ProcessGroup& group, double value) {
  std::vector<double> all{value};
  group.all_reduce(all, ReduceOp::Max);
  return all[0];
}

double median_seconds(ProcessGroup& group, const Trial& trial, double budget) {
  const double once = largest(group, seconds_of(group, trial, 2) / 2);
  constexpr int kBlocks = 15;
  const double for_block = budget / kBlocks;
  const int times = static_cast<int>(std::clamp(for_block / std::max(once, 1e-8), 1.0, 1e6));
  std::vector<double> seconds;
  seconds.reserve(kBlocks);
  for (int i = 0; i < kBlocks; ++i) seconds.push_back(seconds_of(group, trial, times) / times);
  std::nth_element(seconds.begin(), seconds.begin() + kBlocks / 2, seconds.end());
  return largest(group, seconds[kBlocks / 2]);
}

}  // namespace

Measured measure(ProcessGroup& group, const Options& options, std::size_t bytes) {
  const Trial trial = trial_of(group, options, bytes);
  trial.fill();
  trial.run();
  trial.check();
  const double seconds = median_seconds(group, trial, options.seconds);
  Measured result{.bytes = trial.count * size_bytes(options.type), .count = trial.count};
  result.time_us = seconds * 1e6;
  result.algbw_gbs = static_cast<double>(result.bytes) / seconds / 1e9;
  result.busbw_gbs = result.algbw_gbs * trial.bus_factor;
  return result;
}

}  // namespace drun::perf
