// core. One operation as one rank calls it: what the ranks compare before they move data, and what
// error messages call it.
//
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "drun/elements.h"

namespace drun::worker {

struct Call {
  enum class Name : std::uint8_t { Barrier, AllReduce, Broadcast, Message };

  Name name = Name::Barrier;
  DataType type = DataType::U8;
  ReduceOp op = ReduceOp::Sum;  // of AllReduce
  std::int32_t root = 0;        // of Broadcast
  std::uint64_t count = 0;
  bool operator==(const Call&) const = default;
};

// "all_reduce(f32 x 1000, sum)", "broadcast(i64 x 3, root 1)", "barrier()"; a message
// is just "f32 x 10".
std::string to_string(const Call& call);

// The same bytes for equal calls, and only for those.
constexpr std::size_t kCallBytes = 16;
using CallBytes = std::array<char, kCallBytes>;
CallBytes encode(const Call& call);
// Bytes of another process may be anything: an unknown name reads as "unknown call".
std::string describe(const CallBytes& bytes);

// "rank 0 calls barrier(); ranks 1-3, 5 call all_reduce(f32 x 4, sum)", by rank of first caller.
std::string describe_disagreement(const std::vector<CallBytes>& by_rank);

// {0, 1, 2, 5} -> "ranks 0-2, 5"; {4} -> "rank 4". Ascending.
std::string describe_ranks(const std::vector<int>& ranks);

}  // namespace drun::worker
