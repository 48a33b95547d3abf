// core. The memory that operations take.
//
//     std::vector<float> gradients(1000);
//     drun::Elements all = gradients;                     // 1000 x f32
//     drun::Elements some = {gradients.data() + 8, 16};   // 16 x f32 from a pointer
//     int step = 7;
//     drun::ConstElements one = step;                     // one value
//     struct Particle { double x, y; int id; };
//     std::vector<Particle> particles(3);
//     drun::Buffer moved = particles;                     // 3 values of 24 bytes
//     static_assert(!std::is_convertible_v<std::vector<Particle>&, drun::Elements>);
//
//   parameter        accepts                                      used by
//   Elements         numbers that can be written                  reductions
//   ConstElements    numbers                                      inputs of reductions
//   Buffer           Elements, or values of a trivially           operations that only move data
//                    copyable type; writable
//   ConstBuffer      the same, also constant                      inputs of these
//
// Each converts implicitly from a vector, array, span or other contiguous range, from a single
// value, and from {pointer, count}; all are the caller's memory, which must stay valid until the
// operation is done. Temporaries are therefore rejected, except for views such as a span. A class
// with a conversion to Elements, such as a tensor of the program, converts to all four. For GPU
// memory, see device_elements().
//
// Values that are not numbers (structs, enums, bool, std::complex) are moved as their bytes,
// including padding, whose content is unspecified and may be old data. Both sides need the same
// layout, that is, the same build for the same processor. Pointers, views (std::string_view, span)
// and types that are not trivially copyable are rejected at compile time, and so are characters.
// A struct with a pointer in it cannot be detected: the pointer is meaningless on the other rank.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

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

// How a reduction combines elements: a ReduceOp, or premul_sum(factor).
class Reduction {
 public:
  Reduction(ReduceOp op) : op_(op) {}  // NOLINT(google-explicit-constructor)
  // The sum after each element of this rank was multiplied by `factor`, rounded to the type: for
  // sums of F16, BF16, F32 or F64 that could overflow. Ranks may have different factors.
  static Reduction premul_sum(double factor) { return Reduction(ReduceOp::Sum, factor); }

  ReduceOp op() const { return op_; }
  std::optional<double> factor() const { return factor_; }

 private:
  Reduction(ReduceOp op, double factor) : op_(op), factor_(factor) {}

  ReduceOp op_;
  std::optional<double> factor_ = std::nullopt;
};
inline Reduction premul_sum(double factor) { return Reduction::premul_sum(factor); }

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

struct Elements;
struct ConstElements;
struct Buffer;
struct ConstBuffer;

namespace detail {
// The type of the values of a range R.
template <typename R>
using PointedTo = std::remove_pointer_t<decltype(std::data(std::declval<R&>()))>;
template <typename R, typename = void>
inline constexpr bool is_range = false;
template <typename R>
inline constexpr bool
    is_range<R, std::void_t<PointedTo<R>, decltype(std::size(std::declval<R&>()))>> = true;

template <typename R>
inline constexpr bool owns_values = false;
template <typename T, std::size_t n>
inline constexpr bool owns_values<std::array<T, n>> = true;
template <typename T>  // its values end with the expression
inline constexpr bool owns_values<std::initializer_list<T>> = true;
// Whether the memory can outlive the range, as that of a span does. A temporary vector, string or
// array is destroyed before the operation.
template <typename R, typename = void>
inline constexpr bool is_view = false;
template <typename R>
inline constexpr bool is_view<R, std::void_t<PointedTo<R>, PointedTo<const R>>> =
    std::is_trivially_copyable_v<R> && !std::is_const_v<R> && !owns_values<R> &&
    std::is_same_v<PointedTo<R>, PointedTo<const R>>;
template <typename R>
inline constexpr bool is_borrowed =
    std::is_lvalue_reference_v<R> || is_view<std::remove_reference_t<R>>;

// The first value and the number of values of a range, or of a single value.
template <typename R>
auto* first_of(R& range) {
  if constexpr (is_range<R>) {
    return std::data(range);
  } else {
    return std::addressof(range);
  }
}
template <typename R>
std::size_t count_of(const R& range) {
  if constexpr (is_range<R>) {
    return std::size(range);
  } else {
    return 1;
  }
}
// With its const.
template <typename R>
using ValueOf = std::remove_pointer_t<decltype(first_of(std::declval<R&>()))>;

// Characters count as numbers, so that data_type() can report them.
template <typename T, typename = void>
inline constexpr bool is_number = is_character<T>;
template <typename T>
inline constexpr bool is_number<T, std::void_t<decltype(DataTypeOf<T>::value)>> = true;
template <typename T>
inline constexpr bool is_memory = std::is_same_v<T, Elements> || std::is_same_v<T, ConstElements> ||
                                  std::is_same_v<T, Buffer> || std::is_same_v<T, ConstBuffer>;
template <typename T>
inline constexpr bool is_movable = is_number<T> ||
                                   (std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> &&
                                    !std::is_member_pointer_v<T> && !std::is_null_pointer_v<T> &&
                                    !is_view<T> && !is_memory<T>);

template <typename V>
using IfNumber = std::enable_if_t<is_number<std::remove_cv_t<V>>>;
template <typename V>
using IfWritableNumber = std::enable_if_t<is_number<V> && !std::is_const_v<V>>;
template <typename V>
using IfMovable = std::enable_if_t<is_movable<std::remove_cv_t<V>>>;
template <typename V>
using IfWritable = std::enable_if_t<is_movable<V> && !std::is_const_v<V>>;
template <typename R>
using IfBorrowed = std::enable_if_t<is_borrowed<R>>;
// A class of the program with a conversion to Elements or ConstElements, such as a tensor.
template <typename R, typename Memory>
using IfConvertsTo = std::enable_if_t<
    std::is_class_v<std::remove_reference_t<R>> && !is_range<std::remove_reference_t<R>> &&
    !is_memory<std::remove_cv_t<std::remove_reference_t<R>>> &&
    !is_number<std::remove_cv_t<std::remove_reference_t<R>>> && std::is_convertible_v<R, Memory>>;

template <typename V>
constexpr DataType moved_type() {
  if constexpr (is_number<std::remove_cv_t<V>>) {
    return data_type<V>();
  } else {
    return DataType::U8;
  }
}
// The elements of moved_type() in one value.
template <typename V>
inline constexpr std::size_t value_size = is_number<std::remove_cv_t<V>> ? 1 : sizeof(V);
}  // namespace detail

// Numbers that are written, or read and written.
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
  template <typename V, typename = detail::IfWritableNumber<V>>
  Elements(V* at, std::size_t how_many) : data(at), count(how_many), type(data_type<V>()) {}
  // From `vector<float>&`, `span<float>` and `float&`, not from `const vector<float>&`.
  template <typename R, typename = detail::IfBorrowed<R>,
            typename = detail::IfWritableNumber<detail::ValueOf<R>>>
  Elements(R&& range)  // NOLINT: an implicit conversion is what this is for
      : Elements(detail::first_of(range), detail::count_of(range)) {}
};

// Numbers that are only read.
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
  template <typename R, typename = detail::IfConvertsTo<R, Elements>>
  ConstElements(R&& tensor)  // NOLINT: implicit
      : ConstElements(static_cast<const Elements&>(Elements(std::forward<R>(tensor)))) {}
  template <typename V, typename = detail::IfNumber<V>>
  ConstElements(V* at, std::size_t how_many) : data(at), count(how_many), type(data_type<V>()) {}
  template <typename R, typename = detail::IfBorrowed<R>,
            typename = detail::IfNumber<detail::ValueOf<R>>>
  ConstElements(R&& range)  // NOLINT: an implicit conversion is what this is for
      : ConstElements(detail::first_of(range), detail::count_of(range)) {}
};

// Values that are written, or read and written.
struct Buffer {
  Elements elements{};         // the numbers, or the bytes of other values
  std::size_t value_size = 1;  // in elements

  std::size_t count() const { return elements.count / value_size; }

  Buffer() = default;
  template <typename V, typename = detail::IfWritable<V>>
  Buffer(V* at, std::size_t how_many)
      : elements(at, how_many * detail::value_size<V>, detail::moved_type<V>()),
        value_size(detail::value_size<V>) {}
  template <typename R, std::enable_if_t<std::is_convertible_v<R, Elements>, int> = 0>
  Buffer(R&& numbers) : elements(std::forward<R>(numbers)) {}  // NOLINT: implicit
  template <typename R, typename = detail::IfBorrowed<R>,
            typename = detail::IfWritable<detail::ValueOf<R>>,
            std::enable_if_t<!std::is_convertible_v<R, Elements>, int> = 0>
  Buffer(R&& values)  // NOLINT: implicit
      : Buffer(detail::first_of(values), detail::count_of(values)) {}
};

// Values that are only read.
struct ConstBuffer {
  ConstElements elements{};
  std::size_t value_size = 1;  // in elements

  std::size_t count() const { return elements.count / value_size; }

  ConstBuffer() = default;
  ConstBuffer(const Buffer& buffer)  // NOLINT: as from T* to const T*
      : elements(buffer.elements), value_size(buffer.value_size) {}
  template <typename V, typename = detail::IfMovable<V>>
  ConstBuffer(V* at, std::size_t how_many)
      : elements(at, how_many * detail::value_size<V>, detail::moved_type<V>()),
        value_size(detail::value_size<V>) {}
  template <typename R, std::enable_if_t<std::is_convertible_v<R, ConstElements>, int> = 0>
  ConstBuffer(R&& numbers) : elements(std::forward<R>(numbers)) {}  // NOLINT: implicit
  template <typename R, typename = detail::IfBorrowed<R>,
            typename = detail::IfMovable<detail::ValueOf<R>>,
            std::enable_if_t<!std::is_convertible_v<R, ConstElements>, int> = 0>
  ConstBuffer(R&& values)  // NOLINT: implicit
      : ConstBuffer(detail::first_of(values), detail::count_of(values)) {}
};

namespace detail {
// The type of a vector for parts of ranges R.
template <typename R, typename V = std::remove_cv_t<PointedTo<const R>>,
          typename = std::enable_if_t<is_movable<V> && !std::is_same_v<V, bool>>>
using PartOf = V;

template <typename T>
auto allocate_in(std::vector<T>& values) {
  return [&values](std::size_t count) {
    values.resize(count);
    return Buffer(values);
  };
}
}  // namespace detail

// `count` numbers at `data` in the memory of CUDA device `gpu`; `stream` may still use them. Pass
// other values as std::byte.
template <typename T>
Elements device_elements(T* data, std::size_t count, int gpu, void* stream = nullptr) {
  return {data, count, data_type<T>(), gpu, stream};
}

}  // namespace drun
