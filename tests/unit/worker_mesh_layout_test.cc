#include "worker_lib/core/device_mesh.h"

#include <algorithm>
#include <limits>
#include <set>

#include "tests/support/catch.h"

namespace drun::worker {
namespace {

MeshLayout layout_of(const std::vector<int>& shape) {
  std::vector<std::string> names;
  int size = 1;
  for (const int each : shape) {
    names.push_back("d" + std::to_string(names.size()));
    size *= each;
  }
  return make_mesh_layout(shape, names, size).value();
}

std::string layout_error(std::vector<int> shape, std::vector<std::string> names, int ranks) {
  const auto layout = make_mesh_layout(std::move(shape), std::move(names), ranks);
  return layout ? "no error" : layout.error().message;
}

}  // namespace

TEST_CASE("ranks fill a mesh row by row") {
  const auto layout = make_mesh_layout({2, 4}, {"dp", "tp"}, 8);
  REQUIRE(layout);
  CHECK(layout->size() == 8);
  CHECK(layout->dimension("tp") == 1u);
  CHECK_FALSE(layout->dimension("pp"));
  CHECK(layout->coordinate(6, 0) == 1);
  CHECK(layout->coordinate(6, 1) == 2);
  CHECK(layout->line(6, 0) == std::vector<int>{2, 6});
  CHECK(layout->line(6, 1) == std::vector<int>{4, 5, 6, 7});
  CHECK(to_string(*layout) == "(dp=2, tp=4)");
}

TEST_CASE("the lines of every dimension partition the ranks, each rank at its coordinate") {
  const MeshLayout layout =
      layout_of(GENERATE(std::vector<int>{1}, std::vector<int>{7}, std::vector<int>{2, 3},
                         std::vector<int>{3, 1, 4}, std::vector<int>{2, 2, 2, 2}));
  for (std::size_t dimension = 0; dimension < layout.shape.size(); ++dimension) {
    std::set<int> seen;
    std::set<int> numbers;
    for (int rank = 0; rank < layout.size(); ++rank) {
      const std::vector<int> line = layout.line(rank, dimension);
      const int coordinate = layout.coordinate(rank, dimension);
      REQUIRE(line.size() == static_cast<std::size_t>(layout.shape[dimension]));
      CHECK(line[static_cast<std::size_t>(coordinate)] == rank);
      CHECK(std::is_sorted(line.begin(), line.end()));
      for (const int other : line) {
        CHECK(layout.line_number(other, dimension) == layout.line_number(rank, dimension));
        for (std::size_t same = 0; same < layout.shape.size(); ++same) {
          if (same == dimension) continue;
          CHECK(layout.coordinate(other, same) == layout.coordinate(rank, same));
        }
      }
      seen.insert(line.begin(), line.end());
      numbers.insert(layout.line_number(rank, dimension));
    }
    CHECK(seen.size() == static_cast<std::size_t>(layout.size()));
    CHECK(numbers.size() * static_cast<std::size_t>(layout.shape[dimension]) == seen.size());
  }
}

TEST_CASE("an invalid mesh is rejected with the reason") {
  CHECK_THAT(layout_error({2, 3}, {"dp", "tp"}, 8),
             ContainsSubstring("a mesh of (dp=2, tp=3): there are 8 ranks for 6 places"));
  CHECK_THAT(layout_error({}, {}, 1), ContainsSubstring("no dimension"));
  CHECK_THAT(layout_error({2, 4}, {"dp"}, 8), ContainsSubstring("2 sizes, but 1 names"));
  CHECK_THAT(layout_error({2}, {"dp", "tp"}, 2), ContainsSubstring("1 sizes, but 2 names"));
  CHECK_THAT(layout_error({2, 4}, {"dp", ""}, 8), ContainsSubstring("name is empty"));
  CHECK_THAT(layout_error({2, 4}, {"x", "x"}, 8),
             ContainsSubstring("two dimensions are called \"x\""));
  CHECK_THAT(layout_error({0, 4}, {"dp", "tp"}, 8), ContainsSubstring("a dimension of size 0"));
  CHECK_THAT(layout_error({-2, -4}, {"dp", "tp"}, 8), ContainsSubstring("a dimension of size -2"));
  const int most = std::numeric_limits<int>::max();
  CHECK_THAT(layout_error({most, most, most}, {"a", "b", "c"}, 1),
             ContainsSubstring("must multiply to the number of ranks"));
}

}  // namespace drun::worker
