// core. drun's words in NCCL's, and what NCCL has no word for.
//
// Thread:  any.
#pragma once

#include <cstddef>
#include <string>

#include "drun/backend.h"

namespace drun::worker::nccl {

// What only moves is moved as these: I16, which NCCL does not know, as bytes.
struct Moved {
  int type = 0;
  std::size_t units = 1;  // of that type, for each element
};
Moved moved_as(DataType type);

// Of a type and an op that refusal() does not name.
int number_of(DataType type);
int number_of(ReduceOp op);

// Why NCCL cannot do such a call, whatever the memory, and who can; empty: it can.
std::string refusal(const Call& call);
// The same of a message.
std::string refusal(bool is_from_anyone, int tag);

}  // namespace drun::worker::nccl
