#include "worker_lib/tools/perf/buffer.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "worker_lib/math/with_type.h"
#include "worker_lib/nccl/library.h"

namespace drun::perf {
namespace {

using worker::with_type;

// As the type holds it: integers wrap around, short floats round.
template <typename T>
T held(double value) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<std::int64_t>(value));
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(value);
  if constexpr (std::is_class_v<T>) return T(static_cast<float>(value));
}

// Numbers of any type, at `memory`.
void write_all(void* memory, std::size_t count, DataType type, const Buffer::Value& value) {
  with_type(type, [&](auto sample) {
    using T = decltype(sample);
    T* const numbers = static_cast<T*>(memory);
    for (std::size_t i = 0; i < count; ++i) numbers[i] = held<T>(value(i));
  });
}

void check_all(const void* memory, std::size_t count, DataType type, const Buffer::Value& value) {
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

Buffer::Buffer(ProcessGroup& group, const Place& place, std::size_t count, DataType type)
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

void Buffer::fill(const Value& value) const {
  if (!on_gpu_) return write_all(on_host_.get(), count_, type_, value);
  std::vector<char> copy(size_bytes());
  write_all(copy.data(), count_, type_, value);
  on_gpu_->write(copy.data(), copy.size());
}

void Buffer::check(const Value& value) const {
  if (!on_gpu_) return check_all(on_host_.get(), count_, type_, value);
  std::vector<char> copy(size_bytes());
  on_gpu_->read(copy.data(), copy.size());
  check_all(copy.data(), count_, type_, value);
}

double Buffer::first() const {
  assert(type_ == DataType::F64 && count_ > 0);
  double number = 0;
  if (on_gpu_) {
    on_gpu_->read(&number, sizeof number);
  } else {
    std::memcpy(&number, on_host_.get(), sizeof number);
  }
  return number;
}

std::optional<int> Buffer::gpu_number() const {
  return place_.gpu ? std::optional<int>(place_.gpu->number()) : std::nullopt;
}

std::size_t Buffer::size_bytes() const { return count_ * drun::size_bytes(type_); }

}  // namespace drun::perf
