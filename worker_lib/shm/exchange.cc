#include "worker_lib/shm/exchange.h"

#include <algorithm>
#include <cstring>

namespace drun::worker::shm {
namespace {

bool has_lanes(Operation operation) {
  return operation == Operation::Scatter || operation == Operation::AllToAll ||
         operation == Operation::ReduceScatter;
}

std::size_t width_of_lane(Operation operation, std::size_t ranks) {
  return has_lanes(operation) ? kPayloadBytes / ranks / kLineBytes * kLineBytes : kPayloadBytes;
}

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

Exchange::Exchange(Rounds& rounds, const Call& call, std::size_t longest_bytes)
    : rounds_(rounds),
      own_(static_cast<std::size_t>(rounds.rank())),
      ranks_(static_cast<std::size_t>(rounds.size())),
      element_bytes_(size_bytes(call.type)),
      has_lanes_(has_lanes(call.operation)),
      is_reduced_(call.operation == Operation::ReduceScatter),
      longest_bytes_(longest_bytes),
      lane_bytes_(width_of_lane(call.operation, ranks_)),
      reduction_(call, rounds.size()),
      taken_(ranks_),
      sources_(ranks_) {
  give(call);
  take_from(call);
}

void Exchange::give(const Call& call) {
  const auto* input = static_cast<const std::byte*>(call.input);
  const bool is_root = call.root == rounds_.rank();
  std::size_t count = call.count;
  if (call.operation == Operation::Broadcast || call.operation == Operation::Scatter) {
    if (!is_root) return;
  }
  if (has_lanes_) {
    given_ = split(input, call.is_uneven ? call.counts_in : nullptr, call.count);
    return;
  }
  if (call.operation == Operation::AllGather && call.is_uneven) count = call.counts_out[own_];
  given_ = {{.at = input, .bytes = count * element_bytes_}};
}

void Exchange::take_from(const Call& call) {
  auto* output = static_cast<std::byte*>(call.output);
  const auto root = static_cast<std::size_t>(call.root);
  const std::size_t* counts = call.is_uneven ? call.counts_out : nullptr;
  const std::size_t bytes = call.count * element_bytes_;
  switch (call.operation) {
    case Operation::Broadcast:
      if (own_ != root) taken_[root] = {.at = output, .bytes = bytes};
      return;
    case Operation::Scatter:
      taken_[root] = {.at = output, .bytes = bytes};
      return;
    case Operation::Gather:
      if (own_ == root) taken_ = split(output, counts, call.count);
      return;
    case Operation::ReduceScatter:
      taken_.assign(ranks_, {.at = output, .bytes = given_[own_].bytes});
      return;
    default:
      taken_ = split(output, counts, call.count);
  }
}

template <typename Byte>
std::vector<Exchange::Part<Byte>> Exchange::split(Byte* data, const std::size_t* counts,
                                                  std::size_t count) const {
  std::vector<Part<Byte>> parts(ranks_);
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    parts[rank] = {.at = data,
                   .bytes = (counts != nullptr ? counts[rank] : count) * element_bytes_};
    data += parts[rank].bytes;
  }
  return parts;
}

std::size_t Exchange::turns() const { return (longest_bytes_ + lane_bytes_ - 1) / lane_bytes_; }

std::size_t Exchange::bytes_now(std::size_t part_bytes, std::size_t turn) const {
  const std::size_t before = turn * lane_bytes_;
  return part_bytes <= before ? 0 : std::min(lane_bytes_, part_bytes - before);
}

void Exchange::put(std::size_t turn) {
  for (std::size_t lane = 0; lane < given_.size(); ++lane) {
    const std::size_t bytes = bytes_now(given_[lane].bytes, turn);
    if ((has_lanes_ && lane == own_) || bytes == 0) continue;
    copy_bytes(rounds_.mine() + lane * lane_bytes_, given_[lane].at + turn * lane_bytes_, bytes);
  }
}

void Exchange::take(std::size_t turn) {
  if (is_reduced_) return reduce(turn);
  if (turn == 0) keep_own();
  const std::size_t lane = has_lanes_ ? own_ : 0;
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    const std::size_t bytes = bytes_now(taken_[rank].bytes, turn);
    if (rank == own_ || bytes == 0) continue;  // without bytes, `at` may be null
    copy_bytes(taken_[rank].at + turn * lane_bytes_,
               rounds_.of(static_cast<int>(rank)) + lane * lane_bytes_, bytes);
  }
}

void Exchange::reduce(std::size_t turn) {
  const Part<std::byte>& part = taken_[own_];
  const std::size_t bytes = bytes_now(part.bytes, turn);
  if (bytes == 0) return;
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    sources_[rank] = rounds_.of(static_cast<int>(rank)) + own_ * lane_bytes_;
  }
  sources_[own_] = given_[own_].at + turn * lane_bytes_;
  reduction_(part.at + turn * lane_bytes_, sources_, bytes);
}

void Exchange::take_directly(const std::vector<std::byte*>& buffers) {
  const std::size_t begin = has_lanes_ ? own_ * taken_[own_].bytes : 0;
  if (is_reduced_) {
    for (std::size_t rank = 0; rank < ranks_; ++rank) sources_[rank] = buffers[rank] + begin;
    return reduction_(taken_[own_].at, sources_, taken_[own_].bytes);
  }
  keep_own();
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    if (rank != own_) copy_bytes(taken_[rank].at, buffers[rank] + begin, taken_[rank].bytes);
  }
}

void Exchange::keep_own() const {
  if (given_.empty()) return;
  copy_bytes(taken_[own_].at, given_[has_lanes_ ? own_ : 0].at, taken_[own_].bytes);
}

std::size_t longest_part_bytes(const Call& call, int size) {
  std::size_t longest = call.count;
  const std::size_t* counts =
      call.operation == Operation::AllGather ? call.counts_out : call.counts_in;
  if (call.is_uneven) longest = *std::max_element(counts, counts + size);
  return longest * size_bytes(call.type);
}

}  // namespace drun::worker::shm
