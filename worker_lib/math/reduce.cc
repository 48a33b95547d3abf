#include "worker_lib/math/reduce.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace drun::worker {

// --- Reductions of 16-bit floating-point numbers, at memory speed with AVX2
//
// Sums, products and quotients are computed in float and rounded once; if one of them is a NaN, the
// result is always the same positive quiet NaN. Min and Max return the bits of one of the two
// numbers: the left one unless the right one is less (greater). Every instruction set gives the
// same bits.

// type: F16 or BF16. Null: bits.
ReduceFunction half_reduce_function(DataType type, ReduceOp op, Instructions instructions);

// data[i] /= by; type: F16 or BF16.
void divide_halves(void* data, DataType type, std::size_t count, int by, Instructions instructions);

}  // namespace drun::worker

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

// The same loops for any processor of the architecture, and for wider vectors.
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

// The types of 8 bits, for any processor.
template <typename F8, ReduceOp kOp>
void reduce_bytes(void* out, const void* left, const void* right, std::size_t count) {
  auto* to = static_cast<std::uint8_t*>(out);
  const auto* a = static_cast<const std::uint8_t*>(left);
  const auto* b = static_cast<const std::uint8_t*>(right);
  for (std::size_t i = 0; i < count; ++i) {
    const float x = F8::to_float(a[i]);
    const float y = F8::to_float(b[i]);
    if constexpr (kOp == ReduceOp::Sum) to[i] = F8::from_float(x + y);
    if constexpr (kOp == ReduceOp::Product) to[i] = F8::from_float(x * y);
    if constexpr (kOp == ReduceOp::Min) to[i] = y < x ? b[i] : a[i];
    if constexpr (kOp == ReduceOp::Max) to[i] = x < y ? b[i] : a[i];
  }
}

template <typename F8>
ReduceFunction byte_function(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Avg:
      return reduce_bytes<F8, ReduceOp::Sum>;
    case ReduceOp::Product:
      return reduce_bytes<F8, ReduceOp::Product>;
    case ReduceOp::Min:
      return reduce_bytes<F8, ReduceOp::Min>;
    case ReduceOp::Max:
      return reduce_bytes<F8, ReduceOp::Max>;
    default:
      return nullptr;
  }
}

template <typename F8>
void divide_bytes(void* data, std::size_t count, int by) {
  auto* bits = static_cast<std::uint8_t*>(data);
  const auto divisor = static_cast<float>(by);
  for (std::size_t i = 0; i < count; ++i) {
    bits[i] = F8::from_float(F8::to_float(bits[i]) / divisor);
  }
}

template <typename T>
void multiply_all(void* out, const void* in, std::size_t count, double by) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  auto* const to = static_cast<T*>(out);
  const auto* const from = static_cast<const T*>(in);
  const auto factor = static_cast<Wide>(static_cast<T>(static_cast<Wide>(by)));
  for (std::size_t i = 0; i < count; ++i)
    to[i] = static_cast<T>(static_cast<Wide>(from[i]) * factor);
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
  if (type == DataType::F8E4M3) return byte_function<Float8E4M3>(op);
  if (type == DataType::F8E5M2) return byte_function<Float8E5M2>(op);
  return instructions == Instructions::Avx2 ? by_type<Avx2>(type, op) : by_type<Plain>(type, op);
}

void multiply(void* to, const void* from, DataType type, std::size_t count, double factor) {
  if (type == DataType::F16) return multiply_all<Float16>(to, from, count, factor);
  if (type == DataType::BF16) return multiply_all<BFloat16>(to, from, count, factor);
  if (type == DataType::F32) return multiply_all<float>(to, from, count, factor);
  if (type == DataType::F64) return multiply_all<double>(to, from, count, factor);
}

void divide(void* data, DataType type, std::size_t count, int by, Instructions instructions) {
  if (is_half(type)) return divide_halves(data, type, count, by, instructions);
  if (type == DataType::F8E4M3) return divide_bytes<Float8E4M3>(data, count, by);
  if (type == DataType::F8E5M2) return divide_bytes<Float8E5M2>(data, count, by);
  if (type == DataType::F32) return divide_all<float>(data, count, by, instructions);
  if (type == DataType::F64) return divide_all<double>(data, count, by, instructions);
}

}  // namespace drun::worker

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace drun::worker {
namespace {

// The limits of both types. Anything above kInfinity, without the sign, is a NaN.
template <typename Half>
struct Bits;
template <>
struct Bits<Float16> {
  static constexpr std::uint16_t kInfinity = 0x7C00;
  static constexpr std::uint16_t kNan = 0x7E00;
};
template <>
struct Bits<BFloat16> {
  static constexpr std::uint16_t kInfinity = 0x7F80;
  static constexpr std::uint16_t kNan = 0x7FC0;
};

enum class Arithmetic { Add, Multiply };

// Which NaN two NaNs make depends on the order in which a compiler puts them: one for all.
template <typename Half>
[[gnu::always_inline]] inline std::uint16_t rounded(float value) {
  const bool is_nan = (detail::bits_of(value) & 0x7FFFFFFF) > 0x7F800000;
  const std::uint16_t bits = Half::from_float(value);
  return is_nan ? Bits<Half>::kNan : bits;
}

template <typename Half, Arithmetic kWhat>
void compute(void* out, const void* left, const void* right, std::size_t count) {
  auto* to = static_cast<std::uint16_t*>(out);
  const auto* a = static_cast<const std::uint16_t*>(left);
  const auto* b = static_cast<const std::uint16_t*>(right);
  for (std::size_t i = 0; i < count; ++i) {
    const float x = Half::to_float(a[i]);
    const float y = Half::to_float(b[i]);
    to[i] = rounded<Half>(kWhat == Arithmetic::Add ? x + y : x * y);
  }
}

template <typename Half>
void divide_plain(std::uint16_t* data, std::size_t count, float by) {
  for (std::size_t i = 0; i < count; ++i) data[i] = rounded<Half>(Half::to_float(data[i]) / by);
}

// Min and Max need no conversion: as whole numbers with a sign the bits have the order of the
// numbers, with both zeros equal.
template <typename Half, ReduceOp kOp>
void select(void* out, const void* left, const void* right, std::size_t count) {
  auto* to = static_cast<std::int16_t*>(out);
  const auto* a = static_cast<const std::int16_t*>(left);
  const auto* b = static_cast<const std::int16_t*>(right);
  constexpr std::int16_t kInfinity = Bits<Half>::kInfinity;
  for (std::size_t i = 0; i < count; ++i) {
    const auto size_a = static_cast<std::int16_t>(a[i] & 0x7FFF);
    const auto size_b = static_cast<std::int16_t>(b[i] & 0x7FFF);
    const auto order_a = static_cast<std::int16_t>(a[i] < 0 ? -size_a : size_a);
    const auto order_b = static_cast<std::int16_t>(b[i] < 0 ? -size_b : size_b);
    const bool is_beyond = kOp == ReduceOp::Min ? order_b < order_a : order_a < order_b;
    const bool are_numbers = (size_a <= kInfinity) & (size_b <= kInfinity);
    to[i] = (is_beyond & are_numbers) ? b[i] : a[i];
  }
}

#if defined(__x86_64__)

template <typename Half, ReduceOp kOp>
[[gnu::target("avx2")]] void select_avx2(void* out, const void* left, const void* right,
                                         std::size_t count) {
  auto* to = static_cast<std::uint16_t*>(out);
  const auto* a = static_cast<const std::uint16_t*>(left);
  const auto* b = static_cast<const std::uint16_t*>(right);
  const __m256i no_sign = _mm256_set1_epi16(0x7FFF);
  const __m256i infinity = _mm256_set1_epi16(Bits<Half>::kInfinity);
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a + i));
    const __m256i y = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + i));
    const __m256i size_x = _mm256_and_si256(x, no_sign);
    const __m256i size_y = _mm256_and_si256(y, no_sign);
    const __m256i order_x = _mm256_sign_epi16(size_x, x);
    const __m256i order_y = _mm256_sign_epi16(size_y, y);
    const __m256i is_beyond = kOp == ReduceOp::Min ? _mm256_cmpgt_epi16(order_x, order_y)
                                                   : _mm256_cmpgt_epi16(order_y, order_x);
    const __m256i has_nan = _mm256_cmpgt_epi16(_mm256_max_epi16(size_x, size_y), infinity);
    const __m256i takes_y = _mm256_andnot_si256(has_nan, is_beyond);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm256_blendv_epi8(x, y, takes_y));
  }
  select<Half, kOp>(to + i, a + i, b + i, count - i);
}

// 16 numbers as floats. Which of the two has which number is the type's own affair.
struct Floats {
  __m256 first;
  __m256 second;
};

[[gnu::always_inline, gnu::target("avx2,f16c")]] inline Floats load(const std::uint16_t* from,
                                                                    Float16) {
  const auto* at = reinterpret_cast<const __m128i*>(from);
  return {_mm256_cvtph_ps(_mm_loadu_si128(at)), _mm256_cvtph_ps(_mm_loadu_si128(at + 1))};
}

[[gnu::always_inline, gnu::target("avx2,f16c")]] inline void store(const Floats& values,
                                                                   std::uint16_t* to, Float16) {
  auto* at = reinterpret_cast<__m128i*>(to);
  _mm_storeu_si128(at, _mm256_cvtps_ph(values.first, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(at + 1, _mm256_cvtps_ph(values.second, _MM_FROUND_TO_NEAREST_INT));
}

// The even numbers are the lower halves of 32 bits, the odd ones the upper.
[[gnu::always_inline, gnu::target("avx2,f16c")]] inline Floats load(const std::uint16_t* from,
                                                                    BFloat16) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xFFFF0000u));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(bits, 16)),
          _mm256_castsi256_ps(_mm256_and_si256(bits, upper))};
}

// In the upper half of each 32 bits.
[[gnu::always_inline, gnu::target("avx2,f16c")]] inline __m256i round_upper(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i last = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), last);
}

[[gnu::always_inline, gnu::target("avx2,f16c")]] inline void store(const Floats& values,
                                                                   std::uint16_t* to, BFloat16) {
  const __m256i even = _mm256_srli_epi32(round_upper(values.first), 16);
  const __m256i bits = _mm256_blend_epi16(even, round_upper(values.second), 0xAA);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bits);
}

[[gnu::always_inline, gnu::target("avx2,f16c")]] inline bool has_nan(const Floats& values) {
  return _mm256_movemask_ps(_mm256_cmp_ps(values.first, values.second, _CMP_UNORD_Q)) != 0;
}

[[gnu::always_inline, gnu::target("avx2,f16c")]] inline __m256 with_one_nan(__m256 values) {
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000));
  return _mm256_blendv_ps(values, nan, _mm256_cmp_ps(values, values, _CMP_UNORD_Q));
}

template <typename Half, Arithmetic kWhat>
[[gnu::target("avx2,f16c")]] void compute_avx2(void* out, const void* left, const void* right,
                                               std::size_t count) {
  auto* to = static_cast<std::uint16_t*>(out);
  const auto* a = static_cast<const std::uint16_t*>(left);
  const auto* b = static_cast<const std::uint16_t*>(right);
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const Floats x = load(a + i, Half());
    const Floats y = load(b + i, Half());
    Floats z = kWhat == Arithmetic::Add ? Floats{x.first + y.first, x.second + y.second}
                                        : Floats{x.first * y.first, x.second * y.second};
    if (has_nan(z)) z = {with_one_nan(z.first), with_one_nan(z.second)};
    store(z, to + i, Half());
  }
  compute<Half, kWhat>(to + i, a + i, b + i, count - i);
}

template <typename Half>
[[gnu::target("avx2,f16c")]] void divide_avx2(std::uint16_t* data, std::size_t count, float by) {
  const __m256 divisor = _mm256_set1_ps(by);
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const Floats x = load(data + i, Half());
    Floats z{x.first / divisor, x.second / divisor};
    if (has_nan(z)) z = {with_one_nan(z.first), with_one_nan(z.second)};
    store(z, data + i, Half());
  }
  divide_plain<Half>(data + i, count - i, by);
}

template <typename Half>
ReduceFunction avx2_function(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Avg:
      return compute_avx2<Half, Arithmetic::Add>;
    case ReduceOp::Product:
      return compute_avx2<Half, Arithmetic::Multiply>;
    case ReduceOp::Min:
      return select_avx2<Half, ReduceOp::Min>;
    case ReduceOp::Max:
      return select_avx2<Half, ReduceOp::Max>;
    default:
      return nullptr;
  }
}

#endif

template <typename Half>
ReduceFunction plain_function(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Avg:
      return compute<Half, Arithmetic::Add>;
    case ReduceOp::Product:
      return compute<Half, Arithmetic::Multiply>;
    case ReduceOp::Min:
      return select<Half, ReduceOp::Min>;
    case ReduceOp::Max:
      return select<Half, ReduceOp::Max>;
    default:
      return nullptr;
  }
}

template <typename Half>
ReduceFunction function_for(ReduceOp op, Instructions instructions) {
#if defined(__x86_64__)
  if (instructions == Instructions::Avx2) return avx2_function<Half>(op);
#endif
  static_cast<void>(instructions);
  return plain_function<Half>(op);
}

template <typename Half>
void divide_all(std::uint16_t* data, std::size_t count, float by, Instructions instructions) {
#if defined(__x86_64__)
  if (instructions == Instructions::Avx2) return divide_avx2<Half>(data, count, by);
#endif
  static_cast<void>(instructions);
  divide_plain<Half>(data, count, by);
}

}  // namespace

ReduceFunction half_reduce_function(DataType type, ReduceOp op, Instructions instructions) {
  return type == DataType::F16 ? function_for<Float16>(op, instructions)
                               : function_for<BFloat16>(op, instructions);
}

void divide_halves(void* data, DataType type, std::size_t count, int by,
                   Instructions instructions) {
  auto* bits = static_cast<std::uint16_t*>(data);
  const auto divisor = static_cast<float>(by);
  if (type == DataType::F16) return divide_all<Float16>(bits, count, divisor, instructions);
  divide_all<BFloat16>(bits, count, divisor, instructions);
}

}  // namespace drun::worker
