#include "drun/half.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "tests/support/catch.h"
#include "worker_lib/math/reduce.h"

namespace drun::worker {
namespace {

constexpr int kAll = 1 << 16;

struct Format {
  int mantissa_bits = 10;
  int least_exponent = -14;
};
Format format_of(Float16) { return {.mantissa_bits = 10, .least_exponent = -14}; }
Format format_of(BFloat16) { return {.mantissa_bits = 7, .least_exponent = -126}; }

// The value of `bits` by the definition of the formats.
template <typename Half>
double meaning(std::uint16_t bits) {
  const Format format = format_of(Half());
  const int exponent = (bits & 0x7FFF) >> format.mantissa_bits;
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const int lowest = format.least_exponent - format.mantissa_bits;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (0x7FFF >> format.mantissa_bits)) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, lowest);
  return sign * std::ldexp(mantissa + (1 << format.mantissa_bits), lowest + exponent - 1);
}

// The nearest value of the format by the rounding of double (ties to even).
template <typename Half>
double nearest(float value) {
  const Format format = format_of(Half());
  const double most = meaning<Half>(static_cast<std::uint16_t>(Half(INFINITY).bits - 1));
  int exponent = 0;
  std::frexp(static_cast<double>(value), &exponent);
  const int last = std::max(exponent - 1, format.least_exponent) - format.mantissa_bits;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -last)), last);
  return std::abs(rounded) > most ? std::copysign(INFINITY, rounded) : rounded;
}

template <typename Half>
bool rounds_right(float value) {
  const double got = meaning<Half>(Half(value).bits);
  return got == nearest<Half>(value) && std::signbit(got) == std::signbit(value);
}

template <typename Half>
std::vector<Half> all_values() {
  std::vector<Half> values(kAll);
  for (int i = 0; i < kAll; ++i) {
    values[static_cast<std::size_t>(i)].bits = static_cast<std::uint16_t>(i);
  }
  return values;
}

bool same_bits(float left, float right) { return detail::bits_of(left) == detail::bits_of(right); }

template <typename Half>
std::uint16_t expected(ReduceOp op, Half left, Half right) {
  const float a = static_cast<float>(left);
  const float b = static_cast<float>(right);
  if (op == ReduceOp::Min) return b < a ? right.bits : left.bits;
  if (op == ReduceOp::Max) return a < b ? right.bits : left.bits;
  const float result = op == ReduceOp::Sum ? a + b : a * b;
  return std::isnan(result) ? Half(std::numeric_limits<float>::quiet_NaN()).bits
                            : Half(result).bits;
}

// The index of the first difference, or -1.
template <typename Half, typename Expected>
long first_wrong(const std::vector<Half>& got, const Expected& expected_at) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i].bits != expected_at(i)) return static_cast<long>(i);
  }
  return -1;
}

std::vector<Instructions> every_instructions() {
  if (best_instructions() == Instructions::Plain) return {Instructions::Plain};
  return {Instructions::Plain, best_instructions()};
}

}  // namespace

TEMPLATE_TEST_CASE("every 16-bit float means what its format says", "", Float16, BFloat16) {
  int wrong = 0;
  for (const TestType half : all_values<TestType>()) {
    const double value = meaning<TestType>(half.bits);
    const float converted = static_cast<float>(half);
    const bool is_right =
        std::isnan(value) ? std::isnan(converted) : static_cast<double>(converted) == value;
    if (!is_right || std::signbit(converted) != ((half.bits & 0x8000) != 0)) ++wrong;
  }
  CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("every 16-bit float and what lies around it is rounded to nearest even", "",
                   Float16, BFloat16) {
  int wrong = 0;
  for (const TestType half : all_values<TestType>()) {
    const float value = static_cast<float>(half);
    if (std::isnan(value)) continue;
    TestType next = half;
    ++next.bits;
    const float middle = value / 2 + static_cast<float>(next) / 2;
    if (!rounds_right<TestType>(value) || TestType(value).bits != half.bits) ++wrong;
    if (!std::isfinite(middle)) continue;
    for (const float near : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, value),
                             std::nextafter(middle, 2 * middle)}) {
      if (!rounds_right<TestType>(near)) ++wrong;
    }
  }
  CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("any float is rounded to nearest even", "", Float16, BFloat16) {
  std::mt19937 random(7);
  int wrong = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    const float value = detail::float_of(static_cast<std::int32_t>(random()));
    if (std::isnan(value) ? !std::isnan(static_cast<float>(TestType(value)))
                          : !rounds_right<TestType>(value)) {
      ++wrong;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("values above the largest Float16 become infinity from half a step on") {
  CHECK(Float16(65504.0f).bits == 0x7BFF);
  CHECK(Float16(65519.99f).bits == 0x7BFF);
  CHECK(Float16(65520.0f).bits == 0x7C00);
  CHECK(Float16(-1e30f).bits == 0xFC00);
  CHECK(Float16(0x1p-25f).bits == 0);  // a tie, rounded to even
  CHECK(Float16(0x1.8p-24f).bits == 2);
  CHECK(Float16(-0.0f).bits == 0x8000);
}

TEST_CASE("a NaN becomes quiet and keeps its sign and the upper bits of its payload") {
  CHECK(Float16(detail::float_of(static_cast<std::int32_t>(0xFF802000u))).bits == 0xFE01);
  CHECK(BFloat16(detail::float_of(0x7F80FFFF)).bits == 0x7FC0);
  Float16 signalling;
  signalling.bits = 0x7C01;
  CHECK(same_bits(static_cast<float>(signalling), detail::float_of(0x7FC02000)));
}

TEMPLATE_TEST_CASE("16-bit reductions have the same bits with every instruction set", "", Float16,
                   BFloat16) {
  const std::vector<TestType> left = all_values<TestType>();
  std::mt19937 random(11);
  std::vector<std::uint16_t> partners = {0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x3C00,
                                         0x3F80, 0x7BFF, 0x7C00, 0xFC00, 0x7C01, 0x7E00, 0xFE55,
                                         0x7F7F, 0x7F80, 0xFF80, 0x7F81, 0x7FC0, 0xFFFF};
  while (partners.size() < 28) partners.push_back(static_cast<std::uint16_t>(random()));
  const ReduceOp op =
      GENERATE(ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg);
  const ReduceOp same = op == ReduceOp::Avg ? ReduceOp::Sum : op;
  for (const Instructions instructions : every_instructions()) {
    const ReduceFunction reduce = reduce_function(data_type<TestType>(), op, instructions);
    for (const std::uint16_t partner : partners) {
      TestType other;
      other.bits = partner;
      const std::vector<TestType> right(kAll, other);
      std::vector<TestType> out(kAll);
      reduce(out.data(), left.data(), right.data(), out.size());
      INFO(to_string(op) << " with " << partner);
      CHECK(first_wrong(out, [&](std::size_t i) { return expected(same, left[i], other); }) == -1);
      reduce(out.data(), right.data(), left.data(), out.size());
      CHECK(first_wrong(out, [&](std::size_t i) { return expected(same, other, left[i]); }) == -1);
    }
  }
}

TEMPLATE_TEST_CASE("16-bit quotients have the same bits with every instruction set", "", Float16,
                   BFloat16) {
  const int by = GENERATE(1, 2, 3, 7, 64, 1000, 70000);
  for (const Instructions instructions : every_instructions()) {
    std::vector<TestType> values = all_values<TestType>();
    divide(values.data(), data_type<TestType>(), values.size(), by, instructions);
    CHECK(first_wrong(values, [&](std::size_t i) {
            TestType before;
            before.bits = static_cast<std::uint16_t>(i);
            const float result = static_cast<float>(before) / static_cast<float>(by);
            return std::isnan(result) ? TestType(std::numeric_limits<float>::quiet_NaN()).bits
                                      : TestType(result).bits;
          }) == -1);
  }
}

TEMPLATE_TEST_CASE("a reduction touches as many elements as it should, wherever they begin", "",
                   Float16, BFloat16, float, double, std::int8_t, std::int32_t) {
  const Instructions instructions = GENERATE(from_range(every_instructions()));
  const ReduceOp op = GENERATE(ReduceOp::Sum, ReduceOp::Max);
  const ReduceFunction reduce = reduce_function(data_type<TestType>(), op, instructions);
  const TestType untouched(99.0f);
  for (std::size_t begin = 0; begin < 3; ++begin) {
    for (std::size_t count = 0; count <= 70; ++count) {
      std::vector<TestType> out(80, untouched);
      const std::vector<TestType> left(80, TestType(3.0f));
      const std::vector<TestType> right(80, TestType(4.0f));
      reduce(&out[begin], &left[begin], &right[begin], count);
      const TestType result(op == ReduceOp::Sum ? 7.0f : 4.0f);
      bool is_right = true;
      for (std::size_t i = 0; i < out.size(); ++i) {
        is_right &= out[i] == (i >= begin && i < begin + count ? result : untouched);
      }
      CHECK(is_right);
    }
  }
}

TEMPLATE_TEST_CASE("the smaller of a number and a NaN is the left one, wherever it lies", "",
                   Float16, BFloat16, float, double) {
  const Instructions instructions = GENERATE(from_range(every_instructions()));
  const ReduceOp op = GENERATE(ReduceOp::Min, ReduceOp::Max);
  const ReduceFunction reduce = reduce_function(data_type<TestType>(), op, instructions);
  const TestType nan(std::numeric_limits<float>::quiet_NaN());
  const auto is_nan = [](TestType value) { return !(value == value); };
  for (std::size_t count = 1; count <= 40; ++count) {
    for (std::size_t at = 0; at < count; ++at) {
      std::vector<TestType> numbers(count, TestType(5.0f));
      std::vector<TestType> with_nan(count, TestType(5.0f));
      with_nan[at] = nan;
      std::vector<TestType> out(count);
      reduce(out.data(), with_nan.data(), numbers.data(), count);
      CHECK(is_nan(out[at]));
      reduce(out.data(), numbers.data(), with_nan.data(), count);
      CHECK(out[at] == TestType(5.0f));
    }
  }
}

namespace {

struct Format8 {
  int mantissa_bits;
  int bias;
  bool has_infinity;
};

// The value of the bits by the definition of the formats (OCP 8-bit Floating Point Specification).
double meaning8(std::uint8_t bits, const Format8& format) {
  const int exponent = (bits & 0x7F) >> format.mantissa_bits;
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const double sign = (bits & 0x80) != 0 ? -1 : 1;
  const int lowest = 1 - format.bias - format.mantissa_bits;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  if (format.has_infinity && exponent == 31) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : nan;
  }
  if (!format.has_infinity && (bits & 0x7F) == 0x7F) return nan;
  if (exponent == 0) return sign * std::ldexp(mantissa, lowest);
  return sign * std::ldexp(mantissa + (1 << format.mantissa_bits), lowest + exponent - 1);
}

// The bits of the finite number that is nearest, of two the even one.
std::uint8_t nearest8(double value, const Format8& format) {
  const int most = format.has_infinity ? 0x7B : 0x7E;
  int best = 0;
  for (int i = 1; i <= most; ++i) {
    const double distance =
        std::abs(meaning8(static_cast<std::uint8_t>(i), format) - std::abs(value));
    const double least =
        std::abs(meaning8(static_cast<std::uint8_t>(best), format) - std::abs(value));
    if (distance < least || (distance == least && i % 2 == 0)) best = i;
  }
  return static_cast<std::uint8_t>(best | (std::signbit(value) ? 0x80 : 0));
}

template <typename F8>
void check_float8(const Format8& format) {
  int wrong = 0;
  for (int i = 0; i < 256; ++i) {
    const auto bits = static_cast<std::uint8_t>(i);
    const double should = meaning8(bits, format);
    const float is = F8::to_float(bits);
    if (std::isnan(should) ? !std::isnan(is) : is != should) ++wrong;
    if (std::isfinite(should) && F8(is).bits != bits) ++wrong;
  }
  std::minstd_rand random(7);
  std::uniform_real_distribution<double> exponents(-22, 20);
  for (int i = 0; i < 4000; ++i) {
    const auto value = static_cast<float>(std::exp2(exponents(random)) * (i % 2 == 0 ? 1 : -1));
    if (F8(value).bits != nearest8(value, format)) ++wrong;
    // The middle between two numbers, and the floats beside it.
    const auto at = static_cast<std::uint8_t>(i % 0x7A);
    const float middle = (F8::to_float(at) + F8::to_float(static_cast<std::uint8_t>(at + 1))) / 2;
    for (const float each : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
      if (F8(each).bits != nearest8(each, format)) ++wrong;
    }
  }
  CHECK(wrong == 0);
  CHECK(std::isnan(static_cast<float>(F8(std::numeric_limits<float>::quiet_NaN()))));
  const std::uint8_t most = format.has_infinity ? 0x7B : 0x7E;
  CHECK(F8(INFINITY).bits == most);
  CHECK(F8(-1e30f).bits == (most | 0x80));
  CHECK(F8(-0.0f).bits == 0x80);
}

template <typename F8>
float reduced8(DataType type, ReduceOp op, float left, float right) {
  F8 a(left);
  const F8 b(right);
  reduce_function(type, op)(&a, &a, &b, 1);
  return static_cast<float>(a);
}

}  // namespace

TEST_CASE("the types of 8 bits convert as their specification defines them") {
  check_float8<Float8E4M3>({.mantissa_bits = 3, .bias = 7, .has_infinity = false});
  check_float8<Float8E5M2>({.mantissa_bits = 2, .bias = 15, .has_infinity = true});
}

TEST_CASE("numbers of 8 bits are reduced in float and rounded") {
  const auto check = [](auto zero, DataType type) {
    using F8 = decltype(zero);
    CHECK(reduced8<F8>(type, ReduceOp::Sum, 1.5f, 2.5f) == 4);
    CHECK(reduced8<F8>(type, ReduceOp::Product, 1.5f, -4) == -6);
    CHECK(reduced8<F8>(type, ReduceOp::Min, -1, 2) == -1);
    CHECK(reduced8<F8>(type, ReduceOp::Max, -1, 2) == 2);
    CHECK(reduce_function(type, ReduceOp::Band) == nullptr);
    F8 numbers[2] = {F8(6), F8(1)};
    divide(numbers, type, 2, 4);
    CHECK(static_cast<float>(numbers[0]) == 1.5f);
    CHECK(static_cast<float>(numbers[1]) == 0.25f);
  };
  check(Float8E4M3(), DataType::F8E4M3);
  check(Float8E5M2(), DataType::F8E5M2);
  CHECK(reduced8<Float8E4M3>(DataType::F8E4M3, ReduceOp::Sum, 448, 448) == 448);
  CHECK(reduced8<Float8E5M2>(DataType::F8E5M2, ReduceOp::Sum, 57344, 57344) == 57344);
}

}  // namespace drun::worker
