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

template <typename T>
ReduceFunction by_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
      return reduce<T, SumOf>;
    case ReduceOp::Product:
      return reduce<T, ProductOf>;
    case ReduceOp::Min:
      return reduce<T, MinOf>;
    case ReduceOp::Max:
      return reduce<T, MaxOf>;
  }
  return nullptr;
}

}  // namespace

ReduceFunction reduce_function(DataType type, ReduceOp op) {
  switch (type) {
    case DataType::U8:
      return by_op<std::uint8_t>(op);
    case DataType::I8:
      return by_op<std::int8_t>(op);
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

}  // namespace drun::worker
