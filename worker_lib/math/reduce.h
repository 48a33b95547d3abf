// core. Element-wise reductions: out[i] = left[i] op right[i].
//
// Result:  the same bits with every instruction set and at every position, except that a float or
//          double sum or product of two NaNs may be either of them. Min and Max return the left
//          number unless the right one is less (greater).
// Memory:  out may be equal to left or right; otherwise the buffers do not overlap. Alignment is
//          that of the type.
// Thread:  any.
#pragma once

#include <cstddef>
#include <cstdint>

#include "drun/elements.h"

namespace drun::worker {

using ReduceFunction = void (*)(void* out, const void* left, const void* right, std::size_t count);

// Avx2: with F16C as well.
enum class Instructions : std::uint8_t { Plain, Avx2 };

// The best set that this processor supports; determined once.
Instructions best_instructions();

// For Avg, adds; call divide() once at the end. Null for bitwise operations on floating-point
// types.
ReduceFunction reduce_function(DataType type, ReduceOp op,
                               Instructions instructions = best_instructions());

// to[i] = from[i] * factor, with the factor rounded to the type, for floating-point types of 16
// bits or more. `to` may be equal to `from`.
void multiply(void* to, const void* from, DataType type, std::size_t count, double factor);

// data[i] /= by for floating-point types. No effect for others.
void divide(void* data, DataType type, std::size_t count, int by,
            Instructions instructions = best_instructions());

}  // namespace drun::worker
