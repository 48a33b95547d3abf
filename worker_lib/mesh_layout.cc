#include "worker_lib/mesh_layout.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace drun::worker {
namespace {

// How far apart neighbours in this dimension are.
int stride(const MeshLayout& layout, std::size_t dimension) {
  int stride = 1;
  for (std::size_t i = dimension + 1; i < layout.shape.size(); ++i) stride *= layout.shape[i];
  return stride;
}

std::string problem(const MeshLayout& layout, int rank_count) {
  if (layout.shape.empty()) return "it has no dimension";
  if (layout.names.size() != layout.shape.size()) {
    return std::to_string(layout.shape.size()) + " sizes, but " +
           std::to_string(layout.names.size()) + " names: every dimension needs both";
  }
  for (const std::string& name : layout.names) {
    if (name.empty()) return "a dimension's name is empty";
    if (std::count(layout.names.begin(), layout.names.end(), name) > 1) {
      return "two dimensions are called \"" + name + "\"";
    }
  }
  std::int64_t places = 1;
  for (const int size : layout.shape) {
    if (size < 1) return "a dimension of size " + std::to_string(size) + "; expected 1 or more";
    places = std::min<std::int64_t>(places * size, INT64_C(1) << 31);
  }
  if (places == rank_count) return "";
  return "there are " + std::to_string(rank_count) + " ranks for " + std::to_string(places) +
         " places; the sizes must multiply to the number of ranks";
}

}  // namespace

int MeshLayout::size() const {
  int size = 1;
  for (const int each : shape) size *= each;
  return size;
}

std::optional<std::size_t> MeshLayout::dimension(std::string_view name) const {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<std::size_t>(found - names.begin());
}

int MeshLayout::coordinate(int rank, std::size_t dimension) const {
  return rank / stride(*this, dimension) % shape[dimension];
}

int MeshLayout::line_number(int rank, std::size_t dimension) const {
  return rank - coordinate(rank, dimension) * stride(*this, dimension);
}

std::vector<int> MeshLayout::line(int rank, std::size_t dimension) const {
  const int first = line_number(rank, dimension);
  std::vector<int> ranks;
  ranks.reserve(static_cast<std::size_t>(shape[dimension]));
  for (int i = 0; i < shape[dimension]; ++i) ranks.push_back(first + i * stride(*this, dimension));
  return ranks;
}

Result<MeshLayout> make_mesh_layout(std::vector<int> shape, std::vector<std::string> names,
                                    int rank_count) {
  MeshLayout layout{.shape = std::move(shape), .names = std::move(names)};
  const std::string wrong = problem(layout, rank_count);
  if (wrong.empty()) return layout;
  return Error{ErrorCode::Usage, "a mesh of " + to_string(layout) + ": " + wrong};
}

std::string to_string(const MeshLayout& layout) {
  std::string text;
  for (std::size_t i = 0; i < std::max(layout.shape.size(), layout.names.size()); ++i) {
    if (i > 0) text += ", ";
    text += i < layout.names.size() ? layout.names[i] : "?";
    text += "=" + (i < layout.shape.size() ? std::to_string(layout.shape[i]) : "?");
  }
  return "(" + text + ")";
}

}  // namespace drun::worker
