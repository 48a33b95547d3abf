#include <array>
#include <chrono>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "drun/process_group.h"
#include "tests/support/catch.h"

namespace drun {

namespace {

template <typename R, typename Memory>
constexpr bool is = std::is_convertible_v<R, Memory>;

struct Particle {
  double x = 0;
  int id = 0;
};
enum class Color : int { Red };
// As a program's own tensors convert.
struct Tensor {
  std::vector<float> numbers;
  operator Elements() { return numbers; }
};
struct ReadableTensor {
  float* numbers = nullptr;
  operator Elements() { return {numbers, 3}; }
  operator ConstElements() const { return {numbers, 3}; }
};

}  // namespace

// Temporaries are not accepted, because an asynchronous operation would use their memory after it
// is freed.
static_assert(is<std::vector<float>&, Elements>);
static_assert(is<std::span<float>, Elements>);
static_assert(is<std::array<int, 3>&, Elements>);
static_assert(is<int (&)[3], Elements>);
static_assert(is<int&, Elements>);
static_assert(!is<int, Elements>);
static_assert(!is<const int&, Elements>);
static_assert(!is<const std::vector<float>&, Elements>);
static_assert(!is<std::vector<float>, Elements>);
static_assert(!is<std::array<int, 3>, Elements>);

static_assert(is<const std::vector<float>&, ConstElements>);
static_assert(is<std::span<const float>, ConstElements>);
static_assert(is<const float&, ConstElements>);
static_assert(is<Elements, ConstElements>);
static_assert(!is<float, ConstElements>);
static_assert(!is<std::vector<float>, ConstElements>);
static_assert(!is<const std::vector<float>, ConstElements>);
static_assert(!is<std::array<int, 3>, ConstElements>);
static_assert(!is<std::array<const int, 3>, ConstElements>);
static_assert(!is<std::initializer_list<int>, ConstElements>);
static_assert(!is<std::string, ConstElements>);
static_assert(!is<std::vector<bool>&, Elements>);

// Trivially copyable values are moved, and not reduced.
static_assert(is<std::vector<Particle>&, Buffer> && !is<std::vector<Particle>&, Elements>);
static_assert(is<Particle&, Buffer> && !is<Particle&, Elements>);
static_assert(is<std::span<const Particle>, ConstBuffer> && !is<std::span<const Particle>, Buffer>);
static_assert(is<const Particle&, ConstBuffer> && !is<const Particle&, Buffer>);
static_assert(is<std::complex<float>&, Buffer> && !is<std::complex<float>&, Elements>);
static_assert(is<Color&, Buffer> && !is<Color&, Elements>);
static_assert(is<bool&, Buffer> && !is<bool&, Elements>);
static_assert(is<std::vector<std::array<float, 3>>&, Buffer>);
static_assert(is<std::vector<float>&, Buffer> && is<const std::vector<float>&, ConstBuffer>);
static_assert(is<Elements, Buffer> && is<Elements&, ConstBuffer> && is<ConstElements, ConstBuffer>);
static_assert(is<Buffer&, ConstBuffer> && !is<ConstElements, Buffer> && !is<ConstBuffer&, Buffer>);
static_assert(!is<Buffer&, Elements> && !is<ConstBuffer&, ConstElements>);

static_assert(is<Tensor&, Elements> && is<Tensor&, ConstElements>);
static_assert(is<Tensor&, Buffer> && is<Tensor&, ConstBuffer> && !is<const Tensor&, ConstBuffer>);
static_assert(is<ReadableTensor&, Buffer> && is<ReadableTensor&, ConstElements>);
static_assert(is<const ReadableTensor&, ConstBuffer> && !is<const ReadableTensor&, Buffer>);

static_assert(!is<Particle, ConstBuffer>);
static_assert(!is<std::vector<Particle>, ConstBuffer>);
static_assert(!is<std::array<Particle, 2>, ConstBuffer>);
static_assert(!is<int*&, ConstBuffer> && !is<int*, ConstBuffer>);
static_assert(!is<std::nullptr_t, ConstBuffer>);
static_assert(!is<std::vector<int*>&, ConstBuffer>);
static_assert(!is<std::vector<int Particle::*>&, ConstBuffer>);
static_assert(!is<std::vector<std::string_view>&, ConstBuffer>);
static_assert(!is<std::vector<std::span<int>>&, ConstBuffer>);
static_assert(!is<std::vector<std::string>&, ConstBuffer>);
static_assert(!is<std::vector<Elements>&, ConstBuffer>);
static_assert(!is<std::vector<bool>&, Buffer>);

static_assert(data_type<std::byte>() == DataType::U8);
static_assert(data_type<const std::uint8_t>() == DataType::U8);
static_assert(data_type<std::int8_t>() == DataType::I8);

// The functions accept what their parameters do.
template <typename R>
concept Reduces = requires(ProcessGroup& group, R&& data) {
  group.all_reduce(std::forward<R>(data));
  group.all_reduce(std::forward<R>(data), ReduceOp::Max, async_op);
  group.reduce(std::forward<R>(data), 0, async_op);
};
template <typename R>
concept Sends = requires(ProcessGroup& group, R&& data) {
  group.send(std::forward<R>(data), 1);
  group.send(std::forward<R>(data), 1, 7, async_op);
  group.send(std::forward<R>(data), 1, {std::chrono::seconds(5)});
  P2POp::send(std::forward<R>(data), 1);
};
template <typename R>
concept Receives = requires(ProcessGroup& group, R&& data) {
  group.recv(std::forward<R>(data), any_rank);
  group.broadcast(std::forward<R>(data), 0, {.async_op = true});
  P2POp::recv(std::forward<R>(data), any_rank, 7);
};
template <typename R>
concept Gathers = requires(ProcessGroup& group, R&& data) {
  { group.all_gather_v(std::forward<R>(data)) } -> std::same_as<std::vector<Particle>>;
  { group.gather_v(std::forward<R>(data), 0) } -> std::same_as<std::vector<Particle>>;
};
static_assert(Reduces<std::vector<float>&> && Reduces<float&> && Reduces<std::span<float>>);
static_assert(!Reduces<std::vector<Particle>&> && !Reduces<Particle&> && !Reduces<float*>);
static_assert(!Reduces<const std::vector<float>&> && !Reduces<std::vector<float>>);
static_assert(Sends<const std::vector<float>&> && Sends<const Particle&>);
static_assert(!Sends<std::vector<float>> && !Sends<Particle> && !Sends<int> && !Sends<int*&>);
static_assert(Receives<Particle&> && Receives<std::vector<float>&>);
static_assert(!Receives<const Particle&> && !Receives<std::vector<float>>);
// A result does not refer to the argument, so temporaries are accepted.
static_assert(Gathers<std::vector<Particle>> && Gathers<const std::array<Particle, 2>&>);
static_assert(!Gathers<std::vector<Particle*>> && !Gathers<Particle&>);

TEST_CASE("memory is described by pointer, count and type") {
  std::vector<float> numbers(5);
  const Elements some = {numbers.data() + 1, 3};
  CHECK(some.data == &numbers[1]);
  CHECK(some.count == 3);
  CHECK(some.type == DataType::F32);
  const std::int64_t number = 4;
  const ConstElements one = number;
  CHECK(one.data == &number);
  CHECK(one.count == 1);
  CHECK(one.type == DataType::I64);
  const ConstBuffer same = one;
  CHECK(same.count() == 1);
  CHECK(same.elements.type == DataType::I64);
}

TEST_CASE("values that are not numbers are described as bytes") {
  std::vector<Particle> particles(3);
  const Buffer all = particles;
  CHECK(all.count() == 3);
  CHECK(all.value_size == sizeof(Particle));
  CHECK(all.elements.data == particles.data());
  CHECK(all.elements.count == 3 * sizeof(Particle));
  CHECK(all.elements.type == DataType::U8);
  const ConstBuffer some = {particles.data() + 1, 2};
  CHECK(some.count() == 2);
  CHECK(some.elements.data == &particles[1]);
  CHECK(Buffer().count() == 0);
  ReadableTensor tensor;
  CHECK(Buffer(tensor).count() == 3);
  CHECK(Buffer(tensor).value_size == 1);
}

}  // namespace drun
