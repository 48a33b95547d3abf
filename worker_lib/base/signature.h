// core. The signature of an operation: ranks compare it before they move data, and error messages
// name operations by it.
//
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "drun/backend.h"

namespace drun::worker {

// The kinds of an operation's arguments.
struct Shape {
  bool has_root = false;
  bool is_reduction = false;
  bool splits_input = false;   // into a part for each rank
  bool splits_output = false;  // into a part of each rank
};
constexpr Shape shape_of(Operation operation) {
  switch (operation) {
    case Operation::Barrier:
      return {};
    case Operation::Broadcast:
      return {.has_root = true};
    case Operation::AllReduce:
      return {.is_reduction = true};
    case Operation::Reduce:
      return {.has_root = true, .is_reduction = true};
    case Operation::Gather:
      return {.has_root = true, .splits_output = true};
    case Operation::AllGather:
      return {.splits_output = true};
    case Operation::Scatter:
      return {.has_root = true, .splits_input = true};
    case Operation::ReduceScatter:
      return {.is_reduction = true, .splits_input = true};
    case Operation::AllToAll:
      return {.splits_input = true, .splits_output = true};
  }
  return {};
}

// "all_reduce(f32 x 1000, sum)", "broadcast(i64 x 3, root 1)", "gather_v(u8, root 0)",
// "all_to_all_v(f32)", "barrier()".
std::string to_string(const Call& call);

// Equal for calls that match, and only for those: operation, type, op, root, the number of
// elements, and for _v operations whose sizes all ranks know, a hash of these.
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

// {0, 1, 2, 5} -> "ranks 0-2, 5"; {4} -> "rank 4".
std::string describe_ranks(const std::vector<int>& ranks);
// "rank 0 calls barrier(); ranks 1-3, 5 call all_reduce(f32 x 4, sum)", by rank of first caller.
std::string describe_disagreement(const std::vector<Signature>& by_rank);

// The failure of a message whose type or count differs between its two ranks.
BackendFailure message_mismatch(int from, const Signature& sent, const Signature& expected);
// Throws Mismatch, with the same text on every rank, unless all ranks have called the same.
void check_same_calls(std::uint32_t sequence, const std::vector<Signature>& by_rank);

// FNV-1a of numbers or bytes: the same in every process.
template <typename Value>
std::uint64_t hash_of(std::span<const Value> values) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const Value each : values)
    hash = (hash ^ static_cast<std::make_unsigned_t<Value>>(each)) * 0x100000001b3;
  return hash;
}
inline std::uint64_t hash_of(std::string_view text) { return hash_of<char>(std::span(text)); }

// gather_v, scatter_v or all_to_all_v: no rank knows all sizes.
bool has_private_counts(const Call& call);
// For one of these: the elements that this rank gives to each rank, then those that it expects from
// each.
using PartCounts = std::vector<std::uint64_t>;
PartCounts part_counts(const Call& call, int rank, int size);
// Throws Mismatch unless each rank gives to each other one what that one expects. `by_rank`: the
// counts of all ranks, one after the other.
void check_part_counts(const Call& call, std::uint32_t sequence, const PartCounts& by_rank,
                       int size);

}  // namespace drun::worker
