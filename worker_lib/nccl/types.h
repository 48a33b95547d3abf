// core. Converts drun's types and operations to NCCL's, and lists those that NCCL does not support.
#pragma once

#include <cstddef>
#include <string>

#include "drun/backend.h"

namespace drun::worker::nccl {

// The type used to move elements without computing. I16, which NCCL does not support, and numbers
// of 8 bits, which it supports only lately, are moved as bytes.
struct Moved {
  int type = 0;
  std::size_t units = 1;  // units per element
};
Moved moved_as(DataType type);

// NCCL's number of a type or op that refusal() accepts.
int number_of(DataType type);
int number_of(ReduceOp op);

bool is_float8(DataType type);
bool is_reduction(Operation operation);

// Why NCCL does not reduce numbers of 8 bits; empty if it does. `capability`: the major number of
// the GPU's compute capability.
std::string float8_refusal(int version, int capability);

// Why NCCL does not support a call, independent of memory, and which backend does; empty if it
// does.
std::string refusal(const Call& call);
// The same for a message.
std::string refusal(bool is_from_anyone, int tag);

}  // namespace drun::worker::nccl
