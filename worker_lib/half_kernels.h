// core. Reductions of 16-bit floating-point numbers, as fast as memory where the processor helps.
//
// Result:  sums, products and quotients are computed in float and rounded once; a NaN among them is
//          always the same positive quiet one. Min and Max give the bits of one of the two numbers:
//          the left one unless the right one is less (greater). The same bits with every
//          instruction set.
// Memory:  as in reduce.h.
// Thread:  any.
#pragma once

#include <cstddef>

#include "worker_lib/reduce.h"

namespace drun::worker {

// type: F16 or BF16. Null: bits.
ReduceFunction half_reduce_function(DataType type, ReduceOp op, Instructions instructions);

// data[i] /= by; type: F16 or BF16.
void divide_halves(void* data, DataType type, std::size_t count, int by, Instructions instructions);

}  // namespace drun::worker
