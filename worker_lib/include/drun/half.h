// core. The two floating-point types of 16 bits that C++17 lacks: storage, and conversion to and
// from float. Arithmetic is done in float.
//
// Rounding: to nearest, ties to even; what is too large becomes infinity; NaN stays NaN.
// Owner:    values; copy freely.   Thread: any.
#pragma once

#include <cstdint>
#include <cstring>

namespace drun {

// IEEE 754 binary16: 11 bits of precision, up to 65504.
struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value) : bits(from_float(value)) {}
  explicit operator float() const { return to_float(bits); }

  static std::uint16_t from_float(float value) {
    std::uint32_t x = 0;
    std::memcpy(&x, &value, sizeof(x));
    const std::uint32_t sign = x >> 16 & 0x8000u;
    const std::uint32_t magnitude = x & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u);
    if (magnitude >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7C00u);
    if (magnitude < 0x38800000u) {  // subnormal: the float unit rounds it
      float small = 0;
      std::memcpy(&small, &magnitude, sizeof(small));
      const float shifted = small + 0.5f;  // the last bit is now worth 2^-24
      std::uint32_t y = 0;
      std::memcpy(&y, &shifted, sizeof(y));
      return static_cast<std::uint16_t>(sign | (y - 0x3F000000u));
    }
    const std::uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
    return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
  }

  static float to_float(std::uint16_t half) {
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
    const std::uint32_t magnitude = half & 0x7FFFu;
    std::uint32_t x = 0;
    if (magnitude >= 0x7C00u) {
      x = 0x7F800000u | (magnitude & 0x3FFu) << 13;
    } else if (magnitude >= 0x400u) {
      x = (magnitude << 13) + 0x38000000u;
    } else {  // subnormal or zero: a multiple of 2^-24
      const float value = static_cast<float>(magnitude) * 0x1p-24f;
      std::memcpy(&x, &value, sizeof(x));
    }
    x |= sign;
    float value = 0;
    std::memcpy(&value, &x, sizeof(value));
    return value;
  }
};

// The upper half of a float: 8 bits of precision, float's range.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) : bits(from_float(value)) {}
  explicit operator float() const { return to_float(bits); }

  static std::uint16_t from_float(float value) {
    std::uint32_t x = 0;
    std::memcpy(&x, &value, sizeof(x));
    if ((x & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>(x >> 16 | 0x40u);
    return static_cast<std::uint16_t>((x + 0x7FFFu + (x >> 16 & 1u)) >> 16);
  }

  static float to_float(std::uint16_t half) {
    const std::uint32_t x = static_cast<std::uint32_t>(half) << 16;
    float value = 0;
    std::memcpy(&value, &x, sizeof(value));
    return value;
  }
};

inline bool operator==(Float16 a, Float16 b) {
  return static_cast<float>(a) == static_cast<float>(b);
}
inline bool operator!=(Float16 a, Float16 b) { return !(a == b); }
inline bool operator==(BFloat16 a, BFloat16 b) {
  return static_cast<float>(a) == static_cast<float>(b);
}
inline bool operator!=(BFloat16 a, BFloat16 b) { return !(a == b); }

}  // namespace drun
