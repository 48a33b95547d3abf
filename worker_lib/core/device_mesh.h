// core. The layout of a device mesh: ranks in a grid of named dimensions.
//
// Shape:   row-major: the last dimension's coordinate changes from one rank to the next.
// Errors:  make_mesh_layout: Usage, with shape, names and the defect.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace drun::worker {

struct MeshLayout {
  std::vector<int> shape;
  std::vector<std::string> names;  // one per dimension
  bool operator==(const MeshLayout&) const = default;

  int size() const;  // number of ranks
  // The index of a dimension; absent if there is none of that name.
  std::optional<std::size_t> dimension(std::string_view name) const;

  // The next three require 0 <= rank < size() and dimension < shape.size().
  int coordinate(int rank, std::size_t dimension) const;
  // The ranks that differ from `rank` at most in this coordinate, in its order.
  std::vector<int> line(int rank, std::size_t dimension) const;
  // Identifies the line: its first rank.
  int line_number(int rank, std::size_t dimension) const;
};

// A grid for exactly `rank_count` ranks.
Result<MeshLayout> make_mesh_layout(std::vector<int> shape, std::vector<std::string> names,
                                    int rank_count);

std::string to_string(const MeshLayout& layout);  // "(dp=2, tp=4)"

}  // namespace drun::worker
