// core. Checks the caller's arguments and makes a Call of them.
//
// Errors:  throws WorkerError (Usage) with the invalid part, its size and the expected size. Values
//          that only other ranks know (their counts) are not checked.
// Thread:  any.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "drun/backend.h"

namespace drun::worker {

struct Place {
  int rank = 0;
  int size = 1;
};

using Counts = std::vector<std::size_t>;

// The arguments of a collective as the caller gives them.
struct Arguments {
  Operation operation = Operation::Barrier;
  ConstBuffer input{};
  Buffer output{};  // the memory of the input for broadcast, all_reduce and reduce
  int root = 0;
  Reduction op = ReduceOp::Sum;
  // Sizes of the parts in values (not in elements); null for equal parts. Not copied.
  const Counts* counts_in = nullptr;
  const Counts* counts_out = nullptr;
};

Call make_call(const Place& place, const Arguments& given);
// Of a scatter or all_to_all whose receivers do not know the sizes of their parts yet: throws
// unless `input` consists of parts of these sizes, or both are empty on another rank than the root.
void check_parts(const Place& place, const Arguments& given);

// The call without its factor, by which its input has been multiplied: in place if the output is
// the input, otherwise in `product`. Requires host memory.
Call multiplied(Call call, int size, std::vector<std::byte>& product);

// "send(f32 x 3, to rank 1)", "recv(f32 x 3, from anyone)".
std::string to_string(const MessageCall& message);
void check(const Place& place, const MessageCall& message);

}  // namespace drun::worker
