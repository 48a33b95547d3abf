// core. Element-wise reductions: out[i] = left[i] op right[i].
// Memory:  out may be left or right; otherwise they do not overlap. Aligned as their type asks.
// Thread:  any.
#pragma once

#include <cstddef>

#include "drun/elements.h"

namespace drun::worker {

using ReduceFunction = void (*)(void* out, const void* left, const void* right, std::size_t count);

// Avg: adds; divide() does the rest, once. Null: bits of floating-point types.
ReduceFunction reduce_function(DataType type, ReduceOp op);

// data[i] /= by, of floating-point types; of others nothing.
void divide(void* data, DataType type, std::size_t count, int by);

}  // namespace drun::worker
