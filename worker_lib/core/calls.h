// core. Checks the caller's arguments and makes a Call or Message of them.
//
// Errors:  throws WorkerError (Usage) with the invalid part, its size and the expected size. Values
//          that only other ranks know (their counts) are not checked.
// Thread:  any.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "drun/backend.h"

namespace drun::worker {

struct Place {
  int rank = 0;
  int size = 1;
};

using Counts = std::vector<std::size_t>;

Call broadcast_call(const Place& place, const Buffer& data, int root);
Call all_reduce_call(const Place& place, const Elements& data, Reduction op);
Call reduce_call(const Place& place, const Elements& data, int root, Reduction op);
// `counts`: sizes of the parts in values (not in elements); null for equal parts. Not copied.
Call gather_call(const Place& place, const ConstBuffer& mine, const Buffer& all, int root,
                 const Counts* counts = nullptr);
Call all_gather_call(const Place& place, const ConstBuffer& mine, const Buffer& all,
                     const Counts* counts = nullptr);
Call scatter_call(const Place& place, const ConstBuffer& all, const Buffer& mine, int root,
                  const Counts* counts = nullptr);
Call reduce_scatter_call(const Place& place, const ConstElements& all, const Elements& mine,
                         Reduction op, const Counts* counts = nullptr);
// The call without its factor, by which its input has been multiplied: in place if the output is
// the input, otherwise in `product`. Requires host memory.
Call multiplied(Call call, int size, std::vector<std::byte>& product);
Call all_to_all_call(const Place& place, const ConstBuffer& input, const Buffer& output);
Call all_to_all_v_call(const Place& place, const ConstBuffer& input, const Counts& to,
                       const Buffer& output, const Counts& from);
// Throw unless `whole` consists of these parts, or both are empty on another rank than the root.
void check_scatter_parts(const Place& place, const ConstBuffer& whole, const Counts& counts,
                         int root);
void check_all_to_all_parts(const Place& place, const ConstBuffer& whole, const Counts& counts);

using Message = MessageCall;
// "send(f32 x 3, to rank 1)", "recv(f32 x 3, from anyone)".
std::string to_string(const Message& message);
void check(const Place& place, const Message& message);

}  // namespace drun::worker
