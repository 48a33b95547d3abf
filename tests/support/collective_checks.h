// core. What every collective must give, computed one element after the other: numbers for which
// sums and products are exact in all types.
//
// Errors:  throws std::runtime_error that names the call and the first wrong element.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "drun/backend.h"

namespace drun::test {

// How to run a call, and where its buffers come from.
struct CollectiveRig {
  int rank = 0;
  int size = 1;
  std::function<void(const Call&)> run;
  // Absent: ordinary memory.
  std::function<std::shared_ptr<void>(std::size_t size_bytes)> alloc = {};
};

// Which combinations the type has.
bool has_op(DataType type, ReduceOp op);
const std::vector<DataType>& all_types();
const std::vector<ReduceOp>& all_ops();

// AllReduce, Reduce (also in place) and ReduceScatter.
void check_reductions(const CollectiveRig& rig, DataType type, ReduceOp op, std::size_t count);
// Broadcast, Gather, AllGather, Scatter, AllToAll.
void check_moves(const CollectiveRig& rig, DataType type, std::size_t count);
// gather_v, all_gather_v, scatter_v, reduce_scatter_v, all_to_all_v; parts of 0 to `most` elements.
void check_uneven(const CollectiveRig& rig, DataType type, std::size_t most);

}  // namespace drun::test
