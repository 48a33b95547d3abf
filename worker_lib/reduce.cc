#include "worker_lib/reduce.h"

#include <cstdint>
#include <type_traits>

#include "worker_lib/half_kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace drun::worker {
namespace {

// Integers are added and multiplied unsigned: wrapping is defined there. In no less than 32 bits,
// or they would become signed ones.
template <typename T>
using Wide =
    std::conditional_t<sizeof(T) < 4, std::uint32_t,
                       std::make_unsigned_t<std::conditional_t<std::is_integral_v<T>, T, int>>>;

struct SumOf {
  template <typename T>
  T operator()(T left, T right) const {
    if constexpr (std::is_floating_point_v<T>)
      return left + right;
    else
      return static_cast<T>(static_cast<Wide<T>>(left) + static_cast<Wide<T>>(right));
  }
};
struct ProductOf {
  template <typename T>
  T operator()(T left, T right) const {
    if constexpr (std::is_floating_point_v<T>)
      return left * right;
    else
      return static_cast<T>(static_cast<Wide<T>>(left) * static_cast<Wide<T>>(right));
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
[[gnu::always_inline]] inline void reduce(void* out, const void* left, const void* right,
                                          std::size_t count) {
  T* to = static_cast<T*>(out);
  const T* a = static_cast<const T*>(left);
  const T* b = static_cast<const T*>(right);
  for (std::size_t i = 0; i < count; ++i) to[i] = Op{}(a[i], b[i]);
}

template <typename T>
[[gnu::always_inline]] inline void divide_each(T* numbers, std::size_t count, T by) {
  for (std::size_t i = 0; i < count; ++i) numbers[i] /= by;
}

// The same loops for the processors that everybody has, and for wider vectors.
struct Plain {
  template <typename T, typename Op>
  static void run(void* out, const void* left, const void* right, std::size_t count) {
    reduce<T, Op>(out, left, right, count);
  }
  template <typename T>
  static void divide(T* numbers, std::size_t count, T by) {
    divide_each(numbers, count, by);
  }
};

#if defined(__x86_64__)
struct Avx2 {
  template <typename T, typename Op>
  [[gnu::target("avx2")]] static void run(void* out, const void* left, const void* right,
                                          std::size_t count) {
    reduce<T, Op>(out, left, right, count);
  }
  template <typename T>
  [[gnu::target("avx2")]] static void divide(T* numbers, std::size_t count, T by) {
    divide_each(numbers, count, by);
  }
};
#else
using Avx2 = Plain;
#endif

template <typename With, typename T>
ReduceFunction by_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Avg:
      return With::template run<T, SumOf>;
    case ReduceOp::Product:
      return With::template run<T, ProductOf>;
    case ReduceOp::Min:
      return With::template run<T, MinOf>;
    case ReduceOp::Max:
      return With::template run<T, MaxOf>;
    case ReduceOp::Band:
      if constexpr (std::is_integral_v<T>) return With::template run<T, BandOf>;
      break;
    case ReduceOp::Bor:
      if constexpr (std::is_integral_v<T>) return With::template run<T, BorOf>;
      break;
    case ReduceOp::Bxor:
      if constexpr (std::is_integral_v<T>) return With::template run<T, BxorOf>;
      break;
  }
  return nullptr;
}

template <typename With>
ReduceFunction by_type(DataType type, ReduceOp op) {
  switch (type) {
    case DataType::U8:
      return by_op<With, std::uint8_t>(op);
    case DataType::I8:
      return by_op<With, std::int8_t>(op);
    case DataType::I16:
      return by_op<With, std::int16_t>(op);
    case DataType::I32:
      return by_op<With, std::int32_t>(op);
    case DataType::U32:
      return by_op<With, std::uint32_t>(op);
    case DataType::I64:
      return by_op<With, std::int64_t>(op);
    case DataType::U64:
      return by_op<With, std::uint64_t>(op);
    case DataType::F32:
      return by_op<With, float>(op);
    case DataType::F64:
      return by_op<With, double>(op);
    default:
      return nullptr;
  }
}

template <typename T>
void divide_all(void* data, std::size_t count, int by, Instructions instructions) {
  T* numbers = static_cast<T*>(data);
  const T divisor = static_cast<T>(by);
  if (instructions == Instructions::Avx2) return Avx2::divide(numbers, count, divisor);
  Plain::divide(numbers, count, divisor);
}

bool is_half(DataType type) { return type == DataType::F16 || type == DataType::BF16; }

Instructions found_instructions() {
#if defined(__x86_64__)
  // clang 14 does not know the name "f16c".
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool has_f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  if (has_f16c && __builtin_cpu_supports("avx2")) return Instructions::Avx2;
#endif
  return Instructions::Plain;
}

}  // namespace

Instructions best_instructions() {
  static const Instructions found = found_instructions();
  return found;
}

ReduceFunction reduce_function(DataType type, ReduceOp op, Instructions instructions) {
  if (is_half(type)) return half_reduce_function(type, op, instructions);
  return instructions == Instructions::Avx2 ? by_type<Avx2>(type, op) : by_type<Plain>(type, op);
}

void divide(void* data, DataType type, std::size_t count, int by, Instructions instructions) {
  if (is_half(type)) return divide_halves(data, type, count, by, instructions);
  if (type == DataType::F32) return divide_all<float>(data, count, by, instructions);
  if (type == DataType::F64) return divide_all<double>(data, count, by, instructions);
}

}  // namespace drun::worker
