#include "worker_lib/math/reduce.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "worker_lib/math/with_type.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace drun::worker {
namespace {

// --- The types of the processor, and those of 8 bits, which are combined in float and rounded

// Integers are added and multiplied unsigned: wrapping is defined there. In no less than 32 bits,
// or they would become signed ones.
template <typename T>
using Wide =
    std::conditional_t<sizeof(T) < 4, std::uint32_t,
                       std::make_unsigned_t<std::conditional_t<std::is_integral_v<T>, T, int>>>;

template <ReduceOp kOp, typename T>
[[gnu::always_inline]] inline T combined(T left, T right) {
  if constexpr (std::is_class_v<T>) {
    const float x(left);
    const float y(right);
    if constexpr (kOp == ReduceOp::Min) return y < x ? right : left;
    if constexpr (kOp == ReduceOp::Max) return x < y ? right : left;
    return T(combined<kOp>(x, y));
  } else if constexpr (kOp == ReduceOp::Min) {
    return right < left ? right : left;
  } else if constexpr (kOp == ReduceOp::Max) {
    return left < right ? right : left;
  } else if constexpr (std::is_floating_point_v<T>) {
    return kOp == ReduceOp::Sum ? left + right : left * right;
  } else {
    const auto a = static_cast<Wide<T>>(left);
    const auto b = static_cast<Wide<T>>(right);
    if constexpr (kOp == ReduceOp::Sum) return static_cast<T>(a + b);
    if constexpr (kOp == ReduceOp::Product) return static_cast<T>(a * b);
    if constexpr (kOp == ReduceOp::Band) return static_cast<T>(a & b);
    if constexpr (kOp == ReduceOp::Bor) return static_cast<T>(a | b);
    if constexpr (kOp == ReduceOp::Bxor) return static_cast<T>(a ^ b);
  }
}

template <typename T, ReduceOp kOp>
[[gnu::always_inline]] inline void reduce(void* out, const void* left, const void* right,
                                          std::size_t count) {
  T* to = static_cast<T*>(out);
  const T* a = static_cast<const T*>(left);
  const T* b = static_cast<const T*>(right);
  for (std::size_t i = 0; i < count; ++i) to[i] = combined<kOp>(a[i], b[i]);
}

template <typename T>
[[gnu::always_inline]] inline void divide_each(void* data, std::size_t count, int by) {
  using Wide = std::conditional_t<std::is_class_v<T>, float, T>;
  T* numbers = static_cast<T*>(data);
  const auto divisor = static_cast<Wide>(by);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = T(static_cast<Wide>(numbers[i]) / divisor);
}

// The same loops for any processor of the architecture, and for wider vectors.
template <typename T>
struct Plain {
  using Element = T;
  template <ReduceOp kOp>
  static void run(void* out, const void* left, const void* right, std::size_t count) {
    reduce<T, kOp>(out, left, right, count);
  }
  static void divide(void* data, std::size_t count, int by) { divide_each<T>(data, count, by); }
};

#if defined(__x86_64__)
template <typename T>
struct Avx2 {
  using Element = T;
  template <ReduceOp kOp>
  [[gnu::target("avx2")]] static void run(void* out, const void* left, const void* right,
                                          std::size_t count) {
    reduce<T, kOp>(out, left, right, count);
  }
  [[gnu::target("avx2")]] static void divide(void* data, std::size_t count, int by) {
    divide_each<T>(data, count, by);
  }
};
#endif

// --- The floating-point numbers of 16 bits, at memory speed with AVX2
//
// Sums, products and quotients are computed in float and rounded once; if one of them is a NaN, the
// result is always the same positive quiet NaN. Min and Max return the bits of one of the two
// numbers: the left one unless the right one is less (greater). Every instruction set gives the
// same bits.

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

// Which NaN two NaNs make depends on the order in which a compiler puts them: one for all.
template <typename Half>
[[gnu::always_inline]] inline std::uint16_t rounded(float value) {
  const bool is_nan = (detail::bits_of(value) & 0x7FFFFFFF) > 0x7F800000;
  const std::uint16_t bits = Half::from_float(value);
  return is_nan ? Bits<Half>::kNan : bits;
}

template <typename Half>
struct PlainHalves {
  using Element = Half;
  template <ReduceOp kOp>
  static void run(void* out, const void* left, const void* right, std::size_t count) {
    if constexpr (kOp == ReduceOp::Min || kOp == ReduceOp::Max) {
      return select<kOp>(out, left, right, count);
    }
    auto* to = static_cast<std::uint16_t*>(out);
    const auto* a = static_cast<const std::uint16_t*>(left);
    const auto* b = static_cast<const std::uint16_t*>(right);
    for (std::size_t i = 0; i < count; ++i) {
      to[i] = rounded<Half>(combined<kOp>(Half::to_float(a[i]), Half::to_float(b[i])));
    }
  }
  // Min and Max need no conversion: as whole numbers with a sign the bits have the order of the
  // numbers, with both zeros equal.
  template <ReduceOp kOp>
  static void select(void* out, const void* left, const void* right, std::size_t count) {
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
  static void divide(void* data, std::size_t count, int by) {
    auto* bits = static_cast<std::uint16_t*>(data);
    const auto divisor = static_cast<float>(by);
    for (std::size_t i = 0; i < count; ++i) {
      bits[i] = rounded<Half>(Half::to_float(bits[i]) / divisor);
    }
  }
};

#if defined(__x86_64__)

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

template <typename Half>
struct Avx2Halves {
  using Element = Half;
  template <ReduceOp kOp>
  [[gnu::target("avx2,f16c")]] static void run(void* out, const void* left, const void* right,
                                               std::size_t count) {
    auto* to = static_cast<std::uint16_t*>(out);
    const auto* a = static_cast<const std::uint16_t*>(left);
    const auto* b = static_cast<const std::uint16_t*>(right);
    std::size_t i = 0;
    for (; i + 16 <= count; i += 16) {
      if constexpr (kOp == ReduceOp::Min || kOp == ReduceOp::Max) {
        select<kOp>(to + i, a + i, b + i);
      } else {
        const Floats x = load(a + i, Half());
        const Floats y = load(b + i, Half());
        Floats z = kOp == ReduceOp::Sum ? Floats{x.first + y.first, x.second + y.second}
                                        : Floats{x.first * y.first, x.second * y.second};
        if (has_nan(z)) z = {with_one_nan(z.first), with_one_nan(z.second)};
        store(z, to + i, Half());
      }
    }
    PlainHalves<Half>::template run<kOp>(to + i, a + i, b + i, count - i);
  }
  // Of 16 numbers, as PlainHalves::select.
  template <ReduceOp kOp>
  [[gnu::always_inline, gnu::target("avx2,f16c")]] static void select(std::uint16_t* to,
                                                                      const std::uint16_t* a,
                                                                      const std::uint16_t* b) {
    const __m256i no_sign = _mm256_set1_epi16(0x7FFF);
    const __m256i infinity = _mm256_set1_epi16(Bits<Half>::kInfinity);
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a));
    const __m256i y = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b));
    const __m256i size_x = _mm256_and_si256(x, no_sign);
    const __m256i size_y = _mm256_and_si256(y, no_sign);
    const __m256i order_x = _mm256_sign_epi16(size_x, x);
    const __m256i order_y = _mm256_sign_epi16(size_y, y);
    const __m256i is_beyond = kOp == ReduceOp::Min ? _mm256_cmpgt_epi16(order_x, order_y)
                                                   : _mm256_cmpgt_epi16(order_y, order_x);
    const __m256i has_nan = _mm256_cmpgt_epi16(_mm256_max_epi16(size_x, size_y), infinity);
    const __m256i takes_y = _mm256_andnot_si256(has_nan, is_beyond);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_blendv_epi8(x, y, takes_y));
  }
  [[gnu::target("avx2,f16c")]] static void divide(void* data, std::size_t count, int by) {
    auto* bits = static_cast<std::uint16_t*>(data);
    const __m256 divisor = _mm256_set1_ps(static_cast<float>(by));
    std::size_t i = 0;
    for (; i + 16 <= count; i += 16) {
      const Floats x = load(bits + i, Half());
      Floats z{x.first / divisor, x.second / divisor};
      if (has_nan(z)) z = {with_one_nan(z.first), with_one_nan(z.second)};
      store(z, bits + i, Half());
    }
    PlainHalves<Half>::divide(bits + i, count - i, by);
  }
};

#endif

// --- The loops for a type, an operation and an instruction set

// Calls `use` with the loops for T.
template <typename T, typename Use>
void with_loops(Instructions instructions, Use&& use) {
  constexpr bool is_half = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;
  constexpr bool is_byte = std::is_class_v<T> && !is_half;
#if defined(__x86_64__)
  if (instructions == Instructions::Avx2) {
    if constexpr (is_half) return use(Avx2Halves<T>());
    if constexpr (!is_half && !is_byte) return use(Avx2<T>());
  }
#endif
  static_cast<void>(instructions);
  if constexpr (is_half) {
    use(PlainHalves<T>());
  } else {
    use(Plain<T>());
  }
}

template <typename Loops>
ReduceFunction function_of(ReduceOp op) {
  constexpr bool has_bits = std::is_integral_v<typename Loops::Element>;
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Avg:
      return Loops::template run<ReduceOp::Sum>;
    case ReduceOp::Product:
      return Loops::template run<ReduceOp::Product>;
    case ReduceOp::Min:
      return Loops::template run<ReduceOp::Min>;
    case ReduceOp::Max:
      return Loops::template run<ReduceOp::Max>;
    case ReduceOp::Band:
      if constexpr (has_bits) return Loops::template run<ReduceOp::Band>;
      break;
    case ReduceOp::Bor:
      if constexpr (has_bits) return Loops::template run<ReduceOp::Bor>;
      break;
    case ReduceOp::Bxor:
      if constexpr (has_bits) return Loops::template run<ReduceOp::Bxor>;
      break;
  }
  return nullptr;
}

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
  ReduceFunction function = nullptr;
  with_type(type, [&](auto sample) {
    with_loops<decltype(sample)>(instructions,
                                 [&]<typename Loops>(Loops) { function = function_of<Loops>(op); });
  });
  return function;
}

void divide(void* data, DataType type, std::size_t count, int by, Instructions instructions) {
  with_type(type, [&](auto sample) {
    if constexpr (!std::is_integral_v<decltype(sample)>) {
      with_loops<decltype(sample)>(instructions,
                                   [&]<typename Loops>(Loops) { Loops::divide(data, count, by); });
    }
  });
}

void multiply(void* to, const void* from, DataType type, std::size_t count, double factor) {
  with_type(type, [&](auto sample) {
    using T = decltype(sample);
    using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    if constexpr (!std::is_integral_v<T> && sizeof(T) > 1) {
      auto* const products = static_cast<T*>(to);
      const auto* const numbers = static_cast<const T*>(from);
      const auto by = static_cast<Wide>(static_cast<T>(static_cast<Wide>(factor)));
      for (std::size_t i = 0; i < count; ++i)
        products[i] = static_cast<T>(static_cast<Wide>(numbers[i]) * by);
    }
  });
}

}  // namespace drun::worker
