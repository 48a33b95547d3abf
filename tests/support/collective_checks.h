// core. Checks the results of every collective against values computed one element at a time. The
// numbers make sums and products exact in all types.
//
// The checks throw std::runtime_error, which names the call and the first wrong element.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "drun/backend.h"

namespace drun::test {

// Runs calls and allocates their buffers.
struct CollectiveRig {
  int rank = 0;
  int size = 1;
  std::function<void(const Call&)> run;
  // Absent: ordinary memory.
  std::function<std::shared_ptr<void>(std::size_t size_bytes)> alloc = {};
};

// Whether the operation is defined for the type.
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
