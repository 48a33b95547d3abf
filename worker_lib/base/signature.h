// core. The signature of an operation: ranks compare it before they move data, and error messages
// name operations by it.
//
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "drun/backend.h"

namespace drun::worker {

// "all_reduce(f32 x 1000, sum)", "broadcast(i64 x 3, root 1)", "gather_v(u8, root 0)",
// "all_to_all_v(f32)", "barrier()".
std::string to_string(const Call& call);

// Equal for calls that match, and only for those: operation, type, op, root, the number of
// elements, and a hash of the sizes for _v operations of which all ranks know the sizes.
struct Signature {
  std::uint64_t what = 0;   // everything except the number of elements
  std::uint64_t count = 0;  // or the hash
  friend bool operator==(const Signature&, const Signature&) = default;
};
static_assert(sizeof(Signature) == 16);  // sent from rank to rank
Signature signature_of(const Call& call, int size);
// The signature of a message.
Signature signature_of(DataType type, std::size_t count);
// `signature` may come from another process and be invalid: an unknown operation gives "unknown
// call". A message gives "f32 x 10".
std::string describe(const Signature& signature);

// "rank 0 calls barrier(); ranks 1-3, 5 call all_reduce(f32 x 4, sum)", by rank of first caller.
std::string describe_disagreement(const std::vector<Signature>& by_rank);

// {0, 1, 2, 5} -> "ranks 0-2, 5"; {4} -> "rank 4". Ascending.
std::string describe_ranks(const std::vector<int>& ranks);

}  // namespace drun::worker
