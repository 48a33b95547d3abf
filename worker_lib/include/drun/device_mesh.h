// edge. All ranks of a group as a grid of named dimensions, with a group along each of them, as
// torch.distributed's device mesh.
//
//     drun::DeviceMesh mesh = drun::init_device_mesh(world, {2, 4}, {"dp", "tp"});
//     mesh.group("tp").all_reduce(activations);    // with the 3 others of this rank's row
//     mesh.group("dp").all_reduce(gradients);      // with the 1 other of its column
//
// Shape:   row-major: rank 6 of {2, 4} is at dp=1, tp=2.
// Owner:   a handle; copies are the same mesh. Its groups close with the last copy of them and it.
// Thread:  any; of the groups what ProcessGroup says.
// Errors:  WorkerError (Usage) for a shape that does not fit the number of ranks, names that are
//          empty or used twice, and a dimension that is not there; Mismatch, on every rank, where
//          ranks ask for different meshes; and what ProcessGroup::split throws.
#pragma once

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
  int size() const;  // how many ranks there are in all
  int size(std::string_view name) const;
  // Where this rank is, which is also its rank in group(name).
  int coordinate(std::string_view name) const;
  // The members of group(name), as ranks of the group that the mesh was made from.
  std::vector<int> ranks(std::string_view name) const;

  // This rank and those that differ from it in this dimension only.
  ProcessGroup group(std::string_view name) const;

  // The dimensions of these names, in this order, through this rank's place in the others. Nothing
  // is sent; the groups are the same.
  DeviceMesh submesh(const std::vector<std::string>& names) const;

 private:
  struct State;
  friend DeviceMesh init_device_mesh(ProcessGroup, std::vector<int>, std::vector<std::string>,
                                     ProcessGroup::Timeout);
  explicit DeviceMesh(std::shared_ptr<const State> state);

  std::shared_ptr<const State> state_;
};

// A collective: every rank of `world` calls it with the same shape and names. A dimension that has
// all ranks is `world` itself; every other is a split of it.
DeviceMesh init_device_mesh(ProcessGroup world, std::vector<int> shape,
                            std::vector<std::string> names, ProcessGroup::Timeout timeout = {});

}  // namespace drun
