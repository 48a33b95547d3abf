#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "drun/process_group.h"
#include "tests/support/catch.h"

namespace drun {

// Temporaries are not accepted, because an asynchronous operation would use their memory after it
// is freed.
static_assert(std::is_convertible_v<std::vector<float>&, Elements>);
static_assert(std::is_convertible_v<std::span<float>, Elements>);
static_assert(std::is_convertible_v<std::array<int, 3>&, Elements>);
static_assert(std::is_convertible_v<int (&)[3], Elements>);
static_assert(!std::is_convertible_v<const std::vector<float>&, Elements>);
static_assert(!std::is_convertible_v<std::vector<float>, Elements>);
static_assert(!std::is_convertible_v<std::array<int, 3>, Elements>);

static_assert(std::is_convertible_v<const std::vector<float>&, ConstElements>);
static_assert(std::is_convertible_v<std::span<const float>, ConstElements>);
static_assert(std::is_convertible_v<Elements, ConstElements>);
static_assert(!std::is_convertible_v<std::vector<float>, ConstElements>);
static_assert(!std::is_convertible_v<const std::vector<float>, ConstElements>);
static_assert(!std::is_convertible_v<std::array<int, 3>, ConstElements>);
static_assert(!std::is_convertible_v<std::string, ConstElements>);
static_assert(!std::is_convertible_v<std::vector<bool>&, Elements>);

static_assert(data_type<std::byte>() == DataType::U8);
static_assert(data_type<const std::uint8_t>() == DataType::U8);
static_assert(data_type<std::int8_t>() == DataType::I8);

TEST_CASE("a batch accepts read-only memory for sends") {
  const std::vector<int> data{1, 2, 3};
  const P2POperation send = P2POperation::send(data, 1, 7);
  CHECK(send.kind == P2POperation::Kind::Send);
  REQUIRE(send.outgoing.has_value());
  CHECK(send.outgoing->data == data.data());
  CHECK(send.outgoing->count == 3);
  CHECK(send.peer == 1);
  CHECK(send.tag == 7);
  std::vector<int> place(3);
  const P2POperation recv = P2POperation::recv(place, 2);
  CHECK(recv.kind == P2POperation::Kind::Recv);
  CHECK(recv.data.data == place.data());
  CHECK_FALSE(recv.outgoing.has_value());
  const P2POperation named{.kind = P2POperation::Kind::Send, .data = place, .peer = 1};
  CHECK(named.data.data == place.data());
}

}  // namespace drun
