#include "worker_lib/core/device_mesh.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "drun/device_mesh.h"
#include "drun/error.h"
#include "worker_lib/base/deadline.h"
#include "worker_lib/base/signature.h"
#include "worker_lib/core/group.h"

namespace drun::worker {
namespace {

// The difference in rank between neighbors in this dimension.
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

namespace drun {
namespace {

using Kind = WorkerError::Kind;

constexpr char kInit[] = "init_device_mesh";

[[noreturn]] void fail(Kind kind, int rank, const char* operation, const std::string& message) {
  throw WorkerError({.kind = kind, .rank = rank, .operation = operation, .message = message});
}

}  // namespace

struct DeviceMesh::State {
  worker::MeshLayout layout;
  std::vector<int> coordinates;         // this rank's, one a dimension
  std::vector<std::vector<int>> lines;  // the members of each group
  std::vector<ProcessGroup> groups;
  int rank = 0;

  std::size_t dimension(std::string_view name) const {
    const std::optional<std::size_t> found = layout.dimension(name);
    if (found) return *found;
    fail(Kind::Usage, rank, "DeviceMesh",
         "there is no dimension \"" + std::string(name) + "\" in a mesh of " + to_string(layout));
  }
};

DeviceMesh::DeviceMesh(std::shared_ptr<const State> state) : state_(std::move(state)) {}

Deadline DeviceMesh::deadline(const ProcessGroup& world, const TimeoutOptions& options) {
  return world.group_->deadline(options.timeout);
}

// With different meshes, groups would wait for each other.
void DeviceMesh::check_same(ProcessGroup& world, const std::string& mesh,
                            const TimeoutOptions& options) {
  const std::uint64_t hash = worker::hash_of(mesh);
  const std::vector<int> mine{static_cast<int>(hash >> 32), static_cast<int>(hash)};
  const std::vector<int> all = world.group_->told_by_all(mine, options.timeout);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] == all[i % 2]) continue;
    fail(Kind::Mismatch, world.rank(), kInit,
         "this rank asks for a mesh of " + mesh + ", and rank " + std::to_string(i / 2) +
             " for another than rank 0: all must ask for the same");
  }
}

const std::vector<int>& DeviceMesh::shape() const { return state_->layout.shape; }

const std::vector<std::string>& DeviceMesh::names() const { return state_->layout.names; }

int DeviceMesh::size() const { return state_->layout.size(); }

int DeviceMesh::size(std::string_view name) const {
  return state_->layout.shape[state_->dimension(name)];
}

int DeviceMesh::coordinate(std::string_view name) const {
  return state_->coordinates[state_->dimension(name)];
}

std::vector<int> DeviceMesh::ranks(std::string_view name) const {
  return state_->lines[state_->dimension(name)];
}

ProcessGroup DeviceMesh::group(std::string_view name) const {
  return state_->groups[state_->dimension(name)];
}

DeviceMesh DeviceMesh::submesh(const std::vector<std::string>& names) const {
  auto state = std::make_shared<State>();
  state->rank = state_->rank;
  state->layout.names = names;
  for (const std::string& name : names) {
    const std::size_t from = state_->dimension(name);
    state->layout.shape.push_back(state_->layout.shape[from]);
    state->coordinates.push_back(state_->coordinates[from]);
    state->lines.push_back(state_->lines[from]);
    state->groups.push_back(state_->groups[from]);
  }
  const auto checked = worker::make_mesh_layout(state->layout.shape, names, state->layout.size());
  if (!checked) fail(Kind::Usage, state_->rank, "submesh", checked.error().message);
  return DeviceMesh(std::move(state));
}

DeviceMesh init_device_mesh(ProcessGroup world, std::vector<int> shape,
                            std::vector<std::string> names, const TimeoutOptions& options) {
  const int rank = world.rank();
  auto layout = worker::make_mesh_layout(std::move(shape), std::move(names), world.size());
  if (!layout) fail(Kind::Usage, rank, kInit, layout.error().message);
  const Deadline deadline = DeviceMesh::deadline(world, options);
  DeviceMesh::check_same(world, to_string(*layout), options);

  auto state = std::make_shared<DeviceMesh::State>();
  state->rank = rank;
  state->layout = *std::move(layout);
  for (std::size_t i = 0; i < state->layout.shape.size(); ++i) {
    const int coordinate = state->layout.coordinate(rank, i);
    state->coordinates.push_back(coordinate);
    state->lines.push_back(state->layout.line(rank, i));
    const bool is_whole = state->layout.shape[i] == world.size();
    state->groups.push_back(is_whole ? world
                                     : world
                                           .split(state->layout.line_number(rank, i), coordinate,
                                                  {worker::left_until(deadline)})
                                           .value());
  }
  return DeviceMesh(std::move(state));
}

}  // namespace drun
