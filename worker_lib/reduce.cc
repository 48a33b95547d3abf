#include "worker_lib/reduce.h"

#include <cstdint>
#include <type_traits>

namespace drun::worker {
namespace {

// Integers are added and multiplied unsigned in 64 bits: wrapping is defined there, and the low
// bits are the same.
struct SumOf {
  template <typename T>
  T operator()(T left, T right) const {
    if constexpr (std::is_floating_point_v<T>)
      return left + right;
    else
      return static_cast<T>(static_cast<std::uint64_t>(left) + static_cast<std::uint64_t>(right));
  }
};
struct ProductOf {
  template <typename T>
  T operator()(T left, T right) const {
    if constexpr (std::is_floating_point_v<T>)
      return left * right;
    else
      return static_cast<T>(static_cast<std::uint64_t>(left) * static_cast<std::uint64_t>(right));
  }
};
struct BandOf {
  template <typename T>
  T operator()(T left, T right) const {
    return static_cast<T>(left & right);
  }
};
struct BorOf {
  template <typename T>
  T operator()(T left, T right) const {
    return static_cast<T>(left | right);
  }
};
struct BxorOf {
  template <typename T>
  T operator()(T left, T right) const {
    return static_cast<T>(left ^ right);
  }
};
struct MinOf {
  template <typename T>
  T operator()(T left, T right) const {
    return right < left ? right : left;
  }
};
struct MaxOf {
  template <typename T>
  T operator()(T left, T right) const {
    return left < right ? right : left;
  }
};

template <typename T, typename Op>
void reduce(void* out, const void* left, const void* right, std::size_t count) {
  T* to = static_cast<T*>(out);
  const T* a = static_cast<const T*>(left);
  const T* b = static_cast<const T*>(right);
  for (std::size_t i = 0; i < count; ++i) to[i] = Op{}(a[i], b[i]);
}

template <typename Half, typename Op>
void reduce_half(void* out, const void* left, const void* right, std::size_t count) {
  Half* to = static_cast<Half*>(out);
  const Half* a = static_cast<const Half*>(left);
  const Half* b = static_cast<const Half*>(right);
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = Half(Op{}(static_cast<float>(a[i]), static_cast<float>(b[i])));
  }
}

template <typename T, typename Op>
ReduceFunction of_type() {
  if constexpr (std::is_class_v<T>) return reduce_half<T, Op>;
  if constexpr (!std::is_class_v<T>) return reduce<T, Op>;
}

template <typename T>
ReduceFunction by_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Avg:
      return of_type<T, SumOf>();
    case ReduceOp::Product:
      return of_type<T, ProductOf>();
    case ReduceOp::Min:
      return of_type<T, MinOf>();
    case ReduceOp::Max:
      return of_type<T, MaxOf>();
    case ReduceOp::Band:
      if constexpr (std::is_integral_v<T>) return reduce<T, BandOf>;
      break;
    case ReduceOp::Bor:
      if constexpr (std::is_integral_v<T>) return reduce<T, BorOf>;
      break;
    case ReduceOp::Bxor:
      if constexpr (std::is_integral_v<T>) return reduce<T, BxorOf>;
      break;
  }
  return nullptr;
}

template <typename T>
void divide_all(void* data, std::size_t count, int by) {
  T* numbers = static_cast<T*>(data);
  for (std::size_t i = 0; i < count; ++i) {
    if constexpr (std::is_class_v<T>)
      numbers[i] = T(static_cast<float>(numbers[i]) / static_cast<float>(by));
    else
      numbers[i] /= static_cast<T>(by);
  }
}

}  // namespace

ReduceFunction reduce_function(DataType type, ReduceOp op) {
  switch (type) {
    case DataType::U8:
      return by_op<std::uint8_t>(op);
    case DataType::I8:
      return by_op<std::int8_t>(op);
    case DataType::I16:
      return by_op<std::int16_t>(op);
    case DataType::F16:
      return by_op<Float16>(op);
    case DataType::BF16:
      return by_op<BFloat16>(op);
    case DataType::I32:
      return by_op<std::int32_t>(op);
    case DataType::U32:
      return by_op<std::uint32_t>(op);
    case DataType::I64:
      return by_op<std::int64_t>(op);
    case DataType::U64:
      return by_op<std::uint64_t>(op);
    case DataType::F32:
      return by_op<float>(op);
    case DataType::F64:
      return by_op<double>(op);
  }
  return nullptr;
}

void divide(void* data, DataType type, std::size_t count, int by) {
  switch (type) {
    case DataType::F16:
      return divide_all<Float16>(data, count, by);
    case DataType::BF16:
      return divide_all<BFloat16>(data, count, by);
    case DataType::F32:
      return divide_all<float>(data, count, by);
    case DataType::F64:
      return divide_all<double>(data, count, by);
    default:
      return;
  }
}

}  // namespace drun::worker
