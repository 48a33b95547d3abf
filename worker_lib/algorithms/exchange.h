// core. Interface for the algorithms of collectives: sends memory from rank to rank within one
// collective.
//
// Order:   between two ranks, messages of one size arrive in the order in which they were sent.
//          Both sides pass the same size; messages of different sizes are never matched.
// Memory:  must stay valid until wait() has returned, or any function has thrown; then no data
//          moves any more.
// Thread:  one at a time.
// Errors:  throws BackendFailure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

#include "drun/backend.h"
#include "worker_lib/base/signature.h"

namespace drun::worker {

// --- A rank's place in the binomial tree over all ranks, rooted at 0: log2(size) levels

struct TreePlace {
  std::optional<int> parent = std::nullopt;  // absent for rank 0
  std::vector<int> children = {};            // smallest subtrees first
  bool operator==(const TreePlace&) const = default;
};

// Requires 0 <= rank < size.
inline TreePlace place_in_tree(int rank, int size) {
  TreePlace place;
  for (int bit = 1; bit < size; bit *= 2) {
    if ((rank & bit) != 0) {
      place.parent = rank - bit;
      break;
    }
    if (rank + bit < size) place.children.push_back(rank + bit);
  }
  return place;
}

// --- The part of each rank in a buffer that holds all parts in rank order

// `count` elements, divided as evenly as possible.
inline std::vector<std::size_t> even_counts(std::size_t count, std::size_t parts) {
  std::vector<std::size_t> counts(parts, count / parts);
  for (std::size_t i = 0; i < count % parts; ++i) ++counts[i];
  return counts;
}

class Parts {
 public:
  // `counts`: per rank; null: `count` elements for every rank.
  Parts(const std::size_t* counts, std::size_t count, std::size_t element_bytes, int size) {
    offsets_.reserve(static_cast<std::size_t>(size) + 1);
    offsets_.push_back(0);
    for (int rank = 0; rank < size; ++rank) {
      offsets_.push_back(offsets_.back() + (counts ? counts[rank] : count) * element_bytes);
    }
  }
  // `count` elements in total, divided as evenly as possible.
  static Parts shares(std::size_t count, std::size_t element_bytes, int size) {
    const std::vector<std::size_t> counts = even_counts(count, static_cast<std::size_t>(size));
    return Parts(counts.data(), 0, element_bytes, size);
  }

  std::size_t offset(int rank) const { return offsets_[static_cast<std::size_t>(rank)]; }
  std::size_t size_bytes(int rank) const { return offset(rank + 1) - offset(rank); }
  std::size_t total_bytes() const { return offsets_.back(); }
  std::size_t largest_bytes() const {
    std::size_t largest = 0;
    for (std::size_t i = 1; i < offsets_.size(); ++i) {
      largest = std::max(largest, offsets_[i] - offsets_[i - 1]);
    }
    return largest;
  }

 private:
  std::vector<std::size_t> offsets_;
};

// --- What each rank sends to and receives from each other one, in operations that move or reduce
// parts: all except Barrier, AllReduce and Reduce

class PartMoves {
 public:
  template <typename Byte>
  struct Part {
    Byte* data = nullptr;
    std::size_t size_bytes = 0;  // 0: there is none
  };

  // Of the calling rank. `call` must outlive this.
  PartMoves(const Call& call, int rank, int size)
      : call_(call),
        shape_(shape_of(call.operation)),
        rank_(rank),
        in_(call.counts_in, call.count, drun::size_bytes(call.type), size),
        out_(call.counts_out, call.count, drun::size_bytes(call.type), size) {}

  Part<const std::byte> sent_to(int peer) const {
    if (!is_moved(rank_, peer)) return {};
    const auto* const all = static_cast<const std::byte*>(call_.input);
    if (!shape_.splits_input) return {all, own_bytes()};
    return {all + in_.offset(peer), in_.size_bytes(peer)};
  }
  Part<std::byte> received_from(int peer) const {
    if (!is_moved(peer, rank_)) return {};
    auto* const all = static_cast<std::byte*>(call_.output);
    if (!shape_.splits_output) return {all, own_bytes()};
    return {all + out_.offset(peer), out_.size_bytes(peer)};
  }

 private:
  bool is_moved(int from, int to) const {
    if (!shape_.has_root) return true;
    return call_.operation == Operation::Gather ? to == call_.root : from == call_.root;
  }
  std::size_t own_bytes() const { return call_.count * drun::size_bytes(call_.type); }

  const Call& call_;
  const Shape shape_;
  const int rank_;
  const Parts in_;
  const Parts out_;
};

// --- Sending and receiving

class Exchange {
 public:
  using Handle = std::size_t;

  Exchange(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // The rank `distance` after `rank`, modulo the size. The distance may be negative.
  int rank_after(int rank, int distance) const {
    return ((rank + distance) % size_ + size_) % size_;
  }

  // The largest piece that a pipeline should send as one message, of a part of this size. The same
  // on all ranks.
  virtual std::size_t piece_bytes(std::size_t /*part_bytes*/) const { return kPieceBytes; }

  // Both return at once. Messages of 0 bytes are not sent.
  Handle send(int to, const void* data, std::size_t size_bytes) {
    return size_bytes == 0 ? kNothing : start_send(to, data, size_bytes);
  }
  Handle recv(int from, void* data, std::size_t size_bytes) {
    return size_bytes == 0 ? kNothing : start_recv(from, data, size_bytes);
  }
  // Call once per handle.
  void wait(Handle handle) {
    if (handle != kNothing) finish(handle);
  }

  // Larger ones leave the cache between arriving and being reduced; smaller ones cost handshakes.
  // Not a power of two: what is added would have the same lowest address bits, a tenth slower.
  static constexpr std::size_t kPieceBytes = 1'000'000;
  static constexpr Handle kNothing = std::numeric_limits<Handle>::max();

 private:
  virtual Handle start_send(int to, const void* data, std::size_t size_bytes) = 0;
  virtual Handle start_recv(int from, void* data, std::size_t size_bytes) = 0;
  virtual void finish(Handle handle) = 0;

  const int rank_;
  const int size_;
};

}  // namespace drun::worker
