// core. Ranks in a grid of named dimensions: which rank is where, and who lies on a line with it.
//
// Shape:   row-major: the last dimension's coordinate changes from one rank to the next.
// Owner:   a value; copy freely.   Thread: any.
// Errors:  make_mesh_layout: Usage, naming shape, names and what is wrong with them.
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
  std::vector<std::string> names;  // as many
  bool operator==(const MeshLayout&) const = default;

  int size() const;  // how many ranks there are places for
  // Absent: there is no such dimension.
  std::optional<std::size_t> dimension(std::string_view name) const;

  // The next three: 0 <= rank < size(), dimension < shape.size().
  int coordinate(int rank, std::size_t dimension) const;
  // The ranks that have all other coordinates in common with `rank`, in the order of this one.
  std::vector<int> line(int rank, std::size_t dimension) const;
  // Different for each line of that dimension: its first rank.
  int line_number(int rank, std::size_t dimension) const;
};

// A grid for exactly `rank_count` ranks.
Result<MeshLayout> make_mesh_layout(std::vector<int> shape, std::vector<std::string> names,
                                    int rank_count);

std::string to_string(const MeshLayout& layout);  // "(dp=2, tp=4)"

}  // namespace drun::worker
