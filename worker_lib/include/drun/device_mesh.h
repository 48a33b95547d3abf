// edge. Device meshes: all ranks of a group as a grid of named dimensions, with a group along each
// of them, as in torch.distributed.
//
//     std::vector<float> activations(100), gradients(1000);
//     drun::DeviceMesh mesh = drun::init_device_mesh(group, {2, 4}, {"dp", "tp"});
//     mesh.group("tp").all_reduce(activations);    // with the 3 others of this rank's row
//     mesh.group("dp").all_reduce(gradients);      // with the 1 other of its column
//
// Shape:   row-major: rank 6 of {2, 4} is at dp=1, tp=2.
// Owner:   a handle; copies refer to the same mesh. A group of the mesh closes with its last copy,
//          including the mesh's own.
// Thread:  any; for the groups as in ProcessGroup.
// Errors:  WorkerError: Usage for a shape that does not match the number of ranks, for empty or
//          repeated names, and for an unknown dimension; Mismatch, on every rank, if ranks request
//          different meshes; and errors of ProcessGroup::split.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "drun/process_group.h"

namespace drun {

class DeviceMesh {
 public:
  const std::vector<int>& shape() const;
  const std::vector<std::string>& names() const;
  int size() const;  // number of ranks
  int size(std::string_view name) const;
  // The coordinate of this rank, which is also its rank in group(name).
  int coordinate(std::string_view name) const;
  // The members of group(name), as ranks of the group from which the mesh was created.
  std::vector<int> ranks(std::string_view name) const;

  // The group of this rank and the ranks that differ from it in this dimension only.
  ProcessGroup group(std::string_view name) const;

  // The mesh of these dimensions, in this order, at this rank's coordinates in the others. Uses the
  // same groups and sends nothing.
  DeviceMesh submesh(const std::vector<std::string>& names) const;

 private:
  struct State;
  friend DeviceMesh init_device_mesh(ProcessGroup, std::vector<int>, std::vector<std::string>,
                                     const TimeoutOptions&);
  explicit DeviceMesh(std::shared_ptr<const State> state);
  static std::chrono::steady_clock::time_point deadline(const ProcessGroup& world,
                                                        const TimeoutOptions& options);
  // Throws Mismatch on every rank unless all ranks ask for the same mesh.
  static void check_same(ProcessGroup& world, const std::string& mesh,
                         const TimeoutOptions& options);

  std::shared_ptr<const State> state_;
};

// A collective: every rank of `world` calls it with the same shape and names. The group of a
// dimension with all ranks is `world` itself; other groups are created with split.
DeviceMesh init_device_mesh(ProcessGroup world, std::vector<int> shape,
                            std::vector<std::string> names, const TimeoutOptions& options = {});

}  // namespace drun
