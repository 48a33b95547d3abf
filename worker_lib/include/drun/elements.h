// core. Typed memory for operations: pointer, count, one of thirteen types, and for GPU memory the
// GPU and the stream that may still use it.
//
// A vector, array, span or any other contiguous range of numbers converts implicitly; a temporary
// does so only if it is a span. device_elements() describes GPU memory.
//
// Owner:   Elements refer to memory that must stay valid until the operation is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "drun/half.h"

namespace drun {

enum class DataType : std::uint8_t {
  U8,
  I8,
  I16,
  I32,
  U32,
  I64,
  U64,
  F16,
  BF16,
  F32,
  F64,
  F8E4M3,
  F8E5M2,
};

// Integer sums and products wrap around. If a number is NaN, Min and Max return one of the numbers,
// the same on every rank. Band, Bor and Bxor are for integers. Avg, the sum divided by the number
// of ranks, is for floating-point types. The short types are combined in float and rounded
// each time; on GPUs, those of 8 bits in Float16.
enum class ReduceOp : std::uint8_t { Sum, Product, Min, Max, Band, Bor, Bxor, Avg };

std::size_t size_bytes(DataType type);
bool is_floating_point(DataType type);
std::string_view to_string(DataType type);  // "f32"
std::string_view to_string(ReduceOp op);    // "sum"

namespace detail {
// Text, not numbers: whether char is signed depends on the processor, the size of wchar_t on the
// system.
template <typename T>
inline constexpr bool is_character =
    std::is_same_v<T, char> || std::is_same_v<T, wchar_t> || std::is_same_v<T, char16_t> ||
#ifdef __cpp_char8_t
    std::is_same_v<T, char8_t> ||
#endif
    std::is_same_v<T, char32_t>;
}  // namespace detail

// `value` is the DataType of T; undefined for unsupported types. Supported: integers of 1, 2
// (signed), 4 and 8 bytes, std::byte, float, double, and the types of drun/half.h. Characters are
// rejected.
template <typename T, typename = void>
struct DataTypeOf {};
template <>
struct DataTypeOf<std::byte> : std::integral_constant<DataType, DataType::U8> {};
template <>
struct DataTypeOf<float> : std::integral_constant<DataType, DataType::F32> {};
template <>
struct DataTypeOf<double> : std::integral_constant<DataType, DataType::F64> {};
template <>
struct DataTypeOf<Float16> : std::integral_constant<DataType, DataType::F16> {};
template <>
struct DataTypeOf<BFloat16> : std::integral_constant<DataType, DataType::BF16> {};
template <>
struct DataTypeOf<Float8E4M3> : std::integral_constant<DataType, DataType::F8E4M3> {};
template <>
struct DataTypeOf<Float8E5M2> : std::integral_constant<DataType, DataType::F8E5M2> {};
template <typename T>
struct DataTypeOf<
    T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool> &&
                        !detail::is_character<T> && (sizeof(T) != 2 || std::is_signed_v<T>)>>
    : std::integral_constant<
          DataType, sizeof(T) == 1   ? (std::is_signed_v<T> ? DataType::I8 : DataType::U8)
                    : sizeof(T) == 2 ? DataType::I16
                    : sizeof(T) == 4 ? (std::is_signed_v<T> ? DataType::I32 : DataType::U32)
                                     : (std::is_signed_v<T> ? DataType::I64 : DataType::U64)> {};

template <typename T>
constexpr DataType data_type() {
  using Element = std::remove_cv_t<T>;
  static_assert(!detail::is_character<Element>,
                "characters are not numbers: use std::int8_t, std::uint8_t or std::byte");
  if constexpr (detail::is_character<Element>) {
    return DataType::U8;
  } else {
    return DataTypeOf<Element>::value;
  }
}

namespace detail {
// The element type of a range R.
template <typename R>
using PointedTo = std::remove_pointer_t<decltype(std::data(std::declval<R&>()))>;
// Whether the memory can outlive the range: true for an lvalue or a view such as a span. A
// temporary vector, string or array is destroyed before the operation.
template <typename R, typename = void>
struct IsView : std::false_type {};
template <typename R>
struct IsView<R, std::void_t<PointedTo<R>, PointedTo<const R>>>
    : std::bool_constant<std::is_trivially_copyable_v<R> && !std::is_const_v<R> &&
                         std::is_same_v<PointedTo<R>, PointedTo<const R>>> {};
template <typename R>
inline constexpr bool is_borrowed =
    std::is_lvalue_reference_v<R> || IsView<std::remove_reference_t<R>>::value;
// Characters convert, so that data_type() can report them.
template <typename T, typename = void>
inline constexpr bool is_element = is_character<T>;
template <typename T>
inline constexpr bool is_element<T, std::void_t<decltype(DataTypeOf<T>::value)>> = true;
template <typename R>
using IfReadable = std::enable_if_t<is_element<std::remove_cv_t<PointedTo<R>>> && is_borrowed<R>>;
template <typename R>
using IfWritable = std::enable_if_t<is_element<std::remove_cv_t<PointedTo<R>>> &&
                                    !std::is_const_v<PointedTo<R>> && is_borrowed<R>>;
}  // namespace detail

// Memory that is written, or read and written.
struct Elements {
  void* data = nullptr;
  std::size_t count = 0;
  DataType type = DataType::U8;
  // CUDA device number. Absent: host memory, or, if CUDA was loaded before the group was created,
  // determined from the pointer.
  std::optional<int> gpu = std::nullopt;
  // A cudaStream_t: the operation follows work queued on it before the call. Null: the default
  // stream.
  void* stream = nullptr;

  Elements() = default;
  Elements(void* at, std::size_t how_many, DataType of_type, std::optional<int> on_gpu = {},
           void* on_stream = nullptr)
      : data(at), count(how_many), type(of_type), gpu(on_gpu), stream(on_stream) {}
  // From `vector<float>&` and `span<float>`, not from `const vector<float>&`.
  template <typename R, typename = detail::IfWritable<R>>
  Elements(R&& range)  // NOLINT: an implicit conversion is what this is for
      : data(std::data(range)), count(std::size(range)), type(data_type<detail::PointedTo<R>>()) {}
};

// Memory that is only read.
struct ConstElements {
  const void* data = nullptr;
  std::size_t count = 0;
  DataType type = DataType::U8;
  std::optional<int> gpu = std::nullopt;
  void* stream = nullptr;

  ConstElements() = default;
  ConstElements(const void* at, std::size_t how_many, DataType of_type,
                std::optional<int> on_gpu = {}, void* on_stream = nullptr)
      : data(at), count(how_many), type(of_type), gpu(on_gpu), stream(on_stream) {}
  ConstElements(const Elements& elements)  // NOLINT: as from T* to const T*
      : data(elements.data),
        count(elements.count),
        type(elements.type),
        gpu(elements.gpu),
        stream(elements.stream) {}
  template <typename R, typename = detail::IfReadable<R>>
  ConstElements(R&& range)  // NOLINT: an implicit conversion is what this is for
      : data(std::data(range)), count(std::size(range)), type(data_type<detail::PointedTo<R>>()) {}
};

// `count` numbers at `data` in the memory of CUDA device `gpu`; `stream` may still use them.
template <typename T>
Elements device_elements(T* data, std::size_t count, int gpu, void* stream = nullptr) {
  return {data, count, data_type<T>(), gpu, stream};
}

}  // namespace drun
