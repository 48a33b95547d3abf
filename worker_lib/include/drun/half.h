// core. The short floating-point types that C++17 lacks, of 16 and 8 bits: storage, and conversion
// to and from float. Arithmetic is done in float.
//
// Rounding is to nearest, ties to even. 16 bits: values that are too large become infinity, and a
// NaN becomes a quiet NaN with its sign and the upper bits of its payload, as with the processors'
// own instructions. 8 bits, as in CUDA: values that are too large become the largest number, with
// their sign, and every NaN becomes the same one, with its sign.
#pragma once

#include <cstdint>
#include <cstring>

namespace drun {

namespace detail {
inline std::int32_t bits_of(float value) {
  std::int32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float float_of(std::int32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
}  // namespace detail

// IEEE 754 binary16: 11 bits of precision, up to 65504.
struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value) : bits(from_float(value)) {}
  explicit operator float() const { return to_float(bits); }

  static std::uint16_t from_float(float value) {
    const std::int32_t x = detail::bits_of(value);
    const std::int32_t sign = x >> 16 & 0x8000;
    const std::int32_t magnitude = x & 0x7FFFFFFF;
    std::int32_t half = 0;
    if (magnitude > 0x7F800000) {
      half = 0x7E00 | (magnitude >> 13 & 0x3FF);
    } else if (magnitude >= 0x47800000) {
      half = 0x7C00;
    } else if (magnitude >= 0x38800000) {  // may carry into infinity
      half = (magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1)) >> 13;
    } else {  // subnormal: the float unit rounds; after 0.5 the last bit is worth 2^-24
      half = detail::bits_of(detail::float_of(magnitude) + 0.5f) - 0x3F000000;
    }
    return static_cast<std::uint16_t>(half | sign);
  }

  static float to_float(std::uint16_t half) {
    const std::int32_t magnitude = half & 0x7FFF;
    std::int32_t x = 0;
    if (magnitude > 0x7C00) {
      x = 0x7FC00000 | magnitude << 13;
    } else if (magnitude == 0x7C00) {
      x = 0x7F800000;
    } else if (magnitude >= 0x400) {
      x = (magnitude << 13) + 0x38000000;
    } else {  // subnormal or zero: a multiple of 2^-24
      x = detail::bits_of(static_cast<float>(magnitude) * 0x1p-24f);
    }
    const float value = detail::float_of(x);
    return (half & 0x8000) != 0 ? -value : value;
  }
};

// The upper half of a float: 8 bits of precision, float's range.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) : bits(from_float(value)) {}
  explicit operator float() const { return to_float(bits); }

  static std::uint16_t from_float(float value) {
    const auto x = static_cast<std::uint32_t>(detail::bits_of(value));
    const std::uint32_t rounded = (x + 0x7FFFu + (x >> 16 & 1u)) >> 16;
    const bool is_nan = (x & 0x7FFFFFFFu) > 0x7F800000u;
    return static_cast<std::uint16_t>(is_nan ? x >> 16 | 0x40u : rounded);
  }

  static float to_float(std::uint16_t half) {
    return detail::float_of(static_cast<std::int32_t>(static_cast<std::uint32_t>(half) << 16));
  }
};

namespace detail {
template <int kMantissaBits, int kBias, std::uint8_t kMost, std::uint8_t kNan>
struct Float8 {
  std::uint8_t bits = 0;

  Float8() = default;
  explicit Float8(float value) : bits(from_float(value)) {}
  explicit operator float() const { return to_float(bits); }

  static std::uint8_t from_float(float value) {
    const std::int32_t x = bits_of(value);
    const std::int32_t magnitude = x & 0x7FFFFFFF;
    std::int32_t small = 0;
    if (magnitude > 0x7F800000) {
      small = kNan;
    } else if (magnitude >= kLeastNormal) {
      constexpr int kShift = 23 - kMantissaBits;
      const std::int32_t last = magnitude >> kShift & 1;
      const std::int32_t rounded = magnitude + (1 << (kShift - 1)) - 1 + last;
      small = (rounded - kRebias) >> kShift;
    } else {  // subnormal: the float unit rounds
      small = bits_of(float_of(magnitude) + float_of(kRounder)) - kRounder;
    }
    if (magnitude <= 0x7F800000 && small > kMost) small = kMost;
    return static_cast<std::uint8_t>(small | (x >> 24 & 0x80));
  }

  static float to_float(std::uint8_t small) {
    const std::int32_t magnitude = small & 0x7F;
    std::int32_t x = 0;
    if (magnitude > kMost) {  // E5M2 has infinity after the largest number
      x = magnitude == kMost + 1 && kMost + 1 != kNan ? 0x7F800000 : 0x7FC00000;
    } else if (magnitude >> kMantissaBits != 0) {
      x = (magnitude << (23 - kMantissaBits)) + kRebias;
    } else {
      x = bits_of(static_cast<float>(magnitude) * float_of(kUnit));
    }
    const float value = float_of(x);
    return (small & 0x80) != 0 ? -value : value;
  }

 private:
  static constexpr std::int32_t kRebias = (127 - kBias) << 23;
  // As bits of a float: the least normal number, the unit of subnormal ones, and the number at
  // which a float's last bit has that unit.
  static constexpr std::int32_t kLeastNormal = (128 - kBias) << 23;
  static constexpr std::int32_t kUnit = (128 - kBias - kMantissaBits) << 23;
  static constexpr std::int32_t kRounder = kUnit + (23 << 23);
};
}  // namespace detail

// "E4M3FN": 4 bits of precision, up to 448; no infinity.
struct Float8E4M3 : detail::Float8<3, 7, 0x7E, 0x7F> {
  using Float8::Float8;
};
// 3 bits of precision, up to 57344.
struct Float8E5M2 : detail::Float8<2, 15, 0x7B, 0x7E> {
  using Float8::Float8;
};

inline bool operator==(Float8E4M3 a, Float8E4M3 b) {
  return static_cast<float>(a) == static_cast<float>(b);
}
inline bool operator!=(Float8E4M3 a, Float8E4M3 b) { return !(a == b); }
inline bool operator==(Float8E5M2 a, Float8E5M2 b) {
  return static_cast<float>(a) == static_cast<float>(b);
}
inline bool operator!=(Float8E5M2 a, Float8E5M2 b) { return !(a == b); }

inline bool operator==(Float16 a, Float16 b) {
  return static_cast<float>(a) == static_cast<float>(b);
}
inline bool operator!=(Float16 a, Float16 b) { return !(a == b); }
inline bool operator==(BFloat16 a, BFloat16 b) {
  return static_cast<float>(a) == static_cast<float>(b);
}
inline bool operator!=(BFloat16 a, BFloat16 b) { return !(a == b); }

}  // namespace drun
