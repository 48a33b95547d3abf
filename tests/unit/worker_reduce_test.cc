#include "worker_lib/math/reduce.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "tests/support/catch.h"
#include "worker_lib/algorithms/exchange.h"

namespace drun::worker {
namespace {

template <typename T>
std::vector<T> reduce(ReduceOp op, const std::vector<T>& left, const std::vector<T>& right) {
  std::vector<T> out = left;
  reduce_function(data_type<T>(), op)(out.data(), out.data(), right.data(), out.size());
  return out;
}

}  // namespace

TEMPLATE_TEST_CASE("reductions do what they say for every type", "", std::uint8_t, std::int8_t,
                   std::int16_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t, float,
                   double) {
  using Values = std::vector<TestType>;
  const Values left{1, 2, 3, 10};
  const Values right{5, 2, 1, 3};
  CHECK(reduce(ReduceOp::Sum, left, right) == Values{6, 4, 4, 13});
  CHECK(reduce(ReduceOp::Product, left, right) == Values{5, 4, 3, 30});
  CHECK(reduce(ReduceOp::Min, left, right) == Values{1, 2, 1, 3});
  CHECK(reduce(ReduceOp::Max, left, right) == Values{5, 2, 3, 10});
}

TEST_CASE("numbers are multiplied by a factor of their type") {
  std::vector<Float16> halves(9, Float16(3.0F));
  multiply(halves.data(), halves.data(), DataType::F16, 9, 0.1);  // the factor is 0.0999755859375
  CHECK(static_cast<float>(halves[8]) == static_cast<float>(Float16(3.0F * 0.0999755859375F)));
  const std::vector<BFloat16> brains(3, BFloat16(2.0F));
  std::vector<BFloat16> product(3);
  multiply(product.data(), brains.data(), DataType::BF16, 3, 1.5);
  CHECK(static_cast<float>(product[2]) == 3.0F);
  std::vector<float> floats{1, -2};
  multiply(floats.data(), floats.data(), DataType::F32, 2, 1.0 / 3);
  CHECK(floats == std::vector<float>{1.0F / 3, -2.0F * (1.0F / 3)});
  std::vector<double> doubles{3};
  multiply(doubles.data(), doubles.data(), DataType::F64, 1, 0.1);
  CHECK(doubles[0] == 3 * 0.1);
}

TEST_CASE("integer sums and products wrap around") {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK(reduce<std::int64_t>(ReduceOp::Sum, {most}, {1})[0] ==
        std::numeric_limits<std::int64_t>::min());
  CHECK(reduce<std::int64_t>(ReduceOp::Product, {most}, {2})[0] == -2);
  CHECK(reduce<std::int8_t>(ReduceOp::Sum, {127}, {1})[0] == -128);
  CHECK(reduce<std::uint8_t>(ReduceOp::Product, {16}, {17})[0] == 16);
  CHECK(reduce<std::int16_t>(ReduceOp::Product, {-32768}, {-32768})[0] == 0);
  CHECK(reduce<std::int16_t>(ReduceOp::Sum, {32767}, {1})[0] == -32768);
  CHECK(reduce<std::int32_t>(ReduceOp::Product, {-3}, {5})[0] == -15);
}

TEST_CASE("bitwise reductions accept integers and reject floating-point types") {
  CHECK(reduce<std::uint8_t>(ReduceOp::Band, {12}, {10})[0] == 8);
  CHECK(reduce<std::int16_t>(ReduceOp::Bor, {12}, {10})[0] == 14);
  CHECK(reduce<std::int64_t>(ReduceOp::Bxor, {-1}, {10})[0] == -11);
  const ReduceOp op = GENERATE(ReduceOp::Band, ReduceOp::Bor, ReduceOp::Bxor);
  for (int type = 0; type < 11; ++type) {
    const auto data_type = static_cast<DataType>(type);
    CHECK((reduce_function(data_type, op) == nullptr) == is_floating_point(data_type));
  }
}

TEST_CASE("averages of floating-point values are divided, and integers are unchanged") {
  std::vector<float> floats{1, 2, 5};
  divide(floats.data(), DataType::F32, floats.size(), 4);
  CHECK(floats == std::vector<float>{0.25f, 0.5f, 1.25f});
  std::vector<double> doubles{1, 2, 5};
  divide(doubles.data(), DataType::F64, doubles.size(), 4);
  CHECK(doubles == std::vector<double>{0.25, 0.5, 1.25});
  std::vector<std::int32_t> integers{8};
  divide(integers.data(), DataType::I32, integers.size(), 4);
  CHECK(integers[0] == 8);
}

TEST_CASE("every type has a unique name and its size") {
  std::set<std::string_view> names;
  for (int type = 0; type < 11; ++type) names.insert(to_string(static_cast<DataType>(type)));
  CHECK(names.size() == 11);
  CHECK(size_bytes(data_type<float>()) == sizeof(float));
  CHECK(data_type<long long>() == data_type<std::int64_t>());
  CHECK(data_type<unsigned char>() == DataType::U8);
}

TEST_CASE("the tree reaches every rank once, and no rank has more than seven children") {
  for (int size = 1; size <= 70; ++size) {
    int edges = 0;
    for (int rank = 0; rank < size; ++rank) {
      const TreePlace place = place_in_tree(rank, size);
      CHECK(place.parent.has_value() == (rank != 0));
      if (place.parent) {
        const TreePlace above = place_in_tree(*place.parent, size);
        CHECK(std::count(above.children.begin(), above.children.end(), rank) == 1);
      }
      edges += static_cast<int>(place.children.size());
      CHECK(place.children.size() <= 7);
    }
    CHECK(edges == size - 1);
  }
}

}  // namespace drun::worker
