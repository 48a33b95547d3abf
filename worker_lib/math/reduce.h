// core. Element-wise reductions: out[i] = left[i] op right[i].
// Result:  the same bits with every instruction set, wherever an element lies. (But a float or
//          double sum or product of two NaNs is either.) Min and Max: the left number unless the
//          right one is less (greater).
// Memory:  out may be left or right; otherwise they do not overlap. Aligned as their type asks.
// Thread:  any.
#pragma once

#include <cstddef>
#include <cstdint>

#include "drun/elements.h"

namespace drun::worker {

using ReduceFunction = void (*)(void* out, const void* left, const void* right, std::size_t count);

// Avx2: with F16C as well.
enum class Instructions : std::uint8_t { Plain, Avx2 };

// What this processor has; found once.
Instructions best_instructions();

// Avg: adds; divide() does the rest, once. Null: bits of floating-point types.
ReduceFunction reduce_function(DataType type, ReduceOp op,
                               Instructions instructions = best_instructions());

// data[i] /= by, of floating-point types; of others nothing.
void divide(void* data, DataType type, std::size_t count, int by,
            Instructions instructions = best_instructions());

}  // namespace drun::worker
