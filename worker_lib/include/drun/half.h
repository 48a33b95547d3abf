// core. The two 16-bit floating-point types that C++17 lacks: storage, and conversion to and from
// float. Arithmetic is done in float.
//
// Rounding is to nearest, ties to even. Values that are too large become infinity. A NaN becomes a
// quiet NaN with its sign and the upper bits of its payload, as with the processors' own
// instructions.
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

inline bool operator==(Float16 a, Float16 b) {
  return static_cast<float>(a) == static_cast<float>(b);
}
inline bool operator!=(Float16 a, Float16 b) { return !(a == b); }
inline bool operator==(BFloat16 a, BFloat16 b) {
  return static_cast<float>(a) == static_cast<float>(b);
}
inline bool operator!=(BFloat16 a, BFloat16 b) { return !(a == b); }

}  // namespace drun
