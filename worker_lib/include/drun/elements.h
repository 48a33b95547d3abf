// core. Typed memory as every operation takes it: a pointer, a count and one of eight types.
//
// Owner:   Elements look at memory that the caller keeps alive until the call returns.
// Thread:  any; values.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>

namespace drun {

enum class DataType : std::uint8_t { U8, I8, I32, U32, I64, U64, F32, F64 };

// Signed sums and products wrap around. The result of Min and Max with a NaN among the numbers is
// one of them, the same on every rank.
enum class ReduceOp : std::uint8_t { Sum, Product, Min, Max };

std::size_t size_bytes(DataType type);
std::string_view to_string(DataType type);  // "f32"
std::string_view to_string(ReduceOp op);    // "sum"

// float, double and the integers of 1, 4 and 8 bytes, by whatever name.
template <typename T>
concept Element = std::same_as<T, float> || std::same_as<T, double> ||
    (std::integral<T> && !std::same_as<T, bool> &&
     (sizeof(T) == 1 || sizeof(T) == 4 || sizeof(T) == 8));

template <Element T>
constexpr DataType data_type() {
  if constexpr (std::same_as<T, float>) return DataType::F32;
  if constexpr (std::same_as<T, double>) return DataType::F64;
  constexpr bool is_signed = std::is_signed_v<T>;
  if constexpr (sizeof(T) == 1) return is_signed ? DataType::I8 : DataType::U8;
  if constexpr (sizeof(T) == 4) return is_signed ? DataType::I32 : DataType::U32;
  return is_signed ? DataType::I64 : DataType::U64;
}

// Vectors, arrays and spans of such numbers.
template <typename R>
concept ElementRange = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    Element<std::ranges::range_value_t<R>>;

// ... that may be written to: `vector<float>&` and `span<float>`, not `const vector<float>&`.
template <typename R>
concept WritableElementRange =
    ElementRange<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

struct Elements {
  void* data = nullptr;
  std::size_t count = 0;
  DataType type = DataType::U8;
};

struct ConstElements {
  const void* data = nullptr;
  std::size_t count = 0;
  DataType type = DataType::U8;
};

template <WritableElementRange R>
Elements elements_of(R&& range) {
  return {std::ranges::data(range), std::ranges::size(range),
          data_type<std::ranges::range_value_t<R>>()};
}

template <ElementRange R>
ConstElements const_elements_of(R&& range) {
  return {std::ranges::data(range), std::ranges::size(range),
          data_type<std::ranges::range_value_t<R>>()};
}

}  // namespace drun
