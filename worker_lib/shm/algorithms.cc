#include "worker_lib/shm/algorithms.h"

#include <algorithm>
#include <bit>
#include <boost/container/small_vector.hpp>
#include <cassert>
#include <cstring>

#include "worker_lib/base/signature.h"
#include "worker_lib/math/reduce.h"

namespace drun::worker::shm {
namespace {

// By rank. Created per call, so it avoids heap allocation for up to 16 ranks.
using Sources = boost::container::small_vector<const std::byte*, 16>;

// Reduces several arrays into one.
class Reduction {
 public:
  // For `call`'s type and op, over `ranks` ranks. Requires that the type supports the op.
  Reduction(const Call& call, int ranks)
      : function_(reduce_function(call.type, call.op)),
        type_(call.type),
        element_shift_(std::countr_zero(size_bytes(call.type))),
        divisor_(call.op == ReduceOp::Avg ? ranks : 1) {
    assert(function_ != nullptr);
  }

  // out[i] = sources[0][i] op sources[1][i] op ... ; Avg then divides. Also writes the result to
  // each of `copies`. `bytes` must be whole elements. `out` and `copies` may be sources, with the
  // same elements.
  void operator()(std::byte* out, const Sources& sources, std::size_t bytes,
                  const std::vector<std::byte*>& copies = {}) const {
    // A block's running result stays in the first-level cache until the last source is added.
    for (std::size_t done = 0; done < bytes; done += kBlockBytes) {
      const std::size_t now = std::min(kBlockBytes, bytes - done);
      reduce_block(out + done, sources, done, now);
      for (std::byte* copy : copies) std::memcpy(copy + done, out + done, now);
    }
  }

 private:
  static constexpr std::size_t kBlockBytes = 8 * 1024;

  // Only the last step writes to `out`, because `out` may be a source that earlier steps still
  // read.
  void reduce_block(std::byte* out, const Sources& sources, std::size_t begin_bytes,
                    std::size_t bytes) const {
    const std::size_t count = bytes >> element_shift_;
    alignas(64) std::byte scratch[kBlockBytes];
    const std::byte* left = sources.front() + begin_bytes;
    for (std::size_t i = 1; i < sources.size(); ++i) {
      std::byte* to = i + 1 == sources.size() ? out : scratch;
      function_(to, left, sources[i] + begin_bytes, count);
      left = to;
    }
    if (sources.size() == 1 && out != left) std::memcpy(out, left, bytes);
    if (divisor_ != 1) divide(out, type_, count, divisor_);
  }

  ReduceFunction function_;
  DataType type_;
  int element_shift_;  // log2 of the element size
  int divisor_;        // 1: none
};

// --- all_reduce and reduce

// With two ranks, the short form reads as much data as the long one and saves a meeting, until the
// caches overflow. With more ranks, it repeats work. The limits are measured.
bool is_short(std::size_t bytes, std::size_t ranks) {
  constexpr std::size_t kMostOfTwo = 128 * 1024;
  constexpr std::size_t kMostTogether = 64 * 1024;
  return bytes <= kMostOfTwo && (ranks == 2 || bytes * ranks <= kMostTogether);
}

// Reading another rank's memory costs kernel work per page and saves writing each byte to a
// station. Shorter data stays in the cores' caches on its way through stations, and longer data is
// equally fast. Four ranks on two cores are slower with it. The limits are measured.
bool is_read(std::size_t bytes, std::size_t ranks) {
  constexpr std::size_t kLeast = 3 * 1024 * 1024;
  constexpr std::size_t kMost = 32 * 1024 * 1024;
  return bytes >= kLeast && bytes <= kMost && ranks == 2;
}

class Sum final : public Algorithm {
 public:
  // `deadline`: for the second meeting.
  Sum(Rounds& rounds, const Call& call, Deadline deadline)
      : rounds_(rounds),
        own_(static_cast<std::size_t>(rounds.rank())),
        ranks_(static_cast<std::size_t>(rounds.size())),
        bytes_(call.count * size_bytes(call.type)),
        is_short_(is_short(bytes_, ranks_)),
        is_for_all_(call.operation == Operation::AllReduce),
        deadline_(deadline),
        reduction_(call, rounds.size()),
        input_(static_cast<const std::byte*>(call.input)),
        output_(is_for_all_ || call.root == rounds.rank() ? static_cast<std::byte*>(call.output)
                                                          : nullptr),
        sources_(ranks_) {}

  std::size_t turns() const override { return (bytes_ + kPayloadBytes - 1) / kPayloadBytes; }

  void put(std::size_t turn) override {
    const Span now = turn_span(turn);
    const std::byte* from = input_ + now.begin;
    if (is_short_) {
      std::memcpy(rounds_.mine(), from, now.bytes);
      return;
    }
    // A rank reads its own share in place.
    const Span own = share_of(own_, now.bytes);
    const std::size_t own_end = own.begin + own.bytes;
    std::memcpy(rounds_.mine(), from, own.begin);
    std::memcpy(rounds_.mine() + own_end, from + own_end, now.bytes - own_end);
  }

  void take(std::size_t turn) override {
    const Span now = turn_span(turn);
    if (is_short_) return reduce_whole(now);
    reduce_share(now);
    rounds_.meet(deadline_);
    collect_shares(now);
  }

  void take_directly(const std::vector<std::byte*>& buffers) override {
    if (output_ == nullptr) return;
    const Span share = is_for_all_ ? share_of(own_, bytes_) : Span{.begin = 0, .bytes = bytes_};
    std::vector<std::byte*> others;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      sources_[rank] = buffers[rank] + share.begin;
      if (is_for_all_ && rank != own_) others.push_back(buffers[rank] + share.begin);
    }
    reduction_(output_ + share.begin, sources_, share.bytes, others);
  }

  std::size_t reads() const override { return is_for_all_ && is_read(bytes_, ranks_) ? 2 : 0; }
  bool read(std::size_t step, const PeerBuffers& peers) override {
    return step == 0 ? read_share(peers) : read_results(peers);
  }

 private:
  // A range of bytes, in the whole buffer or in this turn's part.
  struct Span {
    std::size_t begin = 0;
    std::size_t bytes = 0;
  };
  Span turn_span(std::size_t turn) const {
    const std::size_t begin = turn * kPayloadBytes;
    return {.begin = begin, .bytes = std::min(kPayloadBytes, bytes_ - begin)};
  }
  // Shares are whole cache lines, so that no two ranks write to the same line.
  Span share_of(std::size_t rank, std::size_t bytes) const {
    const std::size_t most = (bytes / ranks_ / kLineBytes + 1) * kLineBytes;
    const std::size_t begin = std::min(bytes, rank * most);
    return {.begin = begin, .bytes = std::min(most, bytes - begin)};
  }
  // What each rank has put from `begin` on of its station; this rank's data is used in place.
  void find_sources(std::size_t begin, const std::byte* own) {
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      sources_[rank] = rounds_.of(static_cast<int>(rank)) + begin;
    }
    sources_[own_] = own;
  }

  void reduce_whole(const Span& now) {
    if (output_ == nullptr) return;
    find_sources(0, input_ + now.begin);
    reduction_(output_ + now.begin, sources_, now.bytes);
  }

  void reduce_share(const Span& now) {
    const Span share = share_of(own_, now.bytes);
    find_sources(share.begin, input_ + now.begin + share.begin);
    std::byte* const shown = rounds_.mine() + share.begin;
    if (output_ == nullptr) return reduction_(shown, sources_, share.bytes);
    std::vector<std::byte*> others;
    if (is_for_all_) others.push_back(shown);
    reduction_(output_ + now.begin + share.begin, sources_, share.bytes, others);
  }

  void collect_shares(const Span& now) {
    if (output_ == nullptr) return;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      if (rank == own_) continue;
      const Span share = share_of(rank, now.bytes);
      std::memcpy(output_ + now.begin + share.begin,
                  rounds_.of(static_cast<int>(rank)) + share.begin, share.bytes);
    }
  }

  // Uses this rank's station as the buffer for reads, because no rank reads it now.
  bool read_share(const PeerBuffers& peers) {
    constexpr std::size_t kReadBytes = 128 * 1024;  // from one rank at a time
    const std::size_t most = std::min(kReadBytes, kPayloadBytes / ranks_ / kLineBytes * kLineBytes);
    const Span share = share_of(own_, bytes_);
    for (std::size_t done = 0; done < share.bytes; done += most) {
      const std::size_t begin = share.begin + done;
      const std::size_t now = std::min(most, share.bytes - done);
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        std::byte* const got = rounds_.mine() + rank * most;
        sources_[rank] = rank == own_ ? input_ + begin : got;
        if (rank != own_ && !peers.read(rank, begin, got, now)) return false;
      }
      reduction_(output_ + begin, sources_, now);
    }
    return true;
  }

  bool read_results(const PeerBuffers& peers) {
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const Span share = share_of(rank, bytes_);
      if (rank != own_ && !peers.read(rank, share.begin, output_ + share.begin, share.bytes)) {
        return false;
      }
    }
    return true;
  }

  Rounds& rounds_;
  const std::size_t own_;
  const std::size_t ranks_;
  const std::size_t bytes_;
  const bool is_short_;
  const bool is_for_all_;
  const Deadline deadline_;
  const Reduction reduction_;
  const std::byte* input_;
  std::byte* output_;  // null: this rank does not get the result
  Sources sources_;
};

// --- Parts from rank to rank

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

class Exchange final : public Algorithm {
 public:
  Exchange(Rounds& rounds, const Call& call, std::size_t longest_bytes)
      : rounds_(rounds),
        own_(static_cast<std::size_t>(rounds.rank())),
        ranks_(static_cast<std::size_t>(rounds.size())),
        element_bytes_(size_bytes(call.type)),
        has_lanes_(shape_of(call.operation).splits_input),
        is_reduced_(call.operation == Operation::ReduceScatter),
        longest_bytes_(longest_bytes),
        lane_bytes_(has_lanes_ ? kPayloadBytes / ranks_ / kLineBytes * kLineBytes : kPayloadBytes),
        reduction_(call, rounds.size()),
        taken_(ranks_),
        sources_(ranks_) {
    give(call);
    take_from(call);
  }

  std::size_t turns() const override { return (longest_bytes_ + lane_bytes_ - 1) / lane_bytes_; }

  void put(std::size_t turn) override {
    for (std::size_t lane = 0; lane < given_.size(); ++lane) {
      const std::size_t bytes = bytes_now(given_[lane].bytes, turn);
      if ((has_lanes_ && lane == own_) || bytes == 0) continue;
      copy_bytes(rounds_.mine() + lane * lane_bytes_, given_[lane].at + turn * lane_bytes_, bytes);
    }
  }

  void take(std::size_t turn) override {
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

  void take_directly(const std::vector<std::byte*>& buffers) override {
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

 private:
  template <typename Byte>
  struct Part {
    Byte* at = nullptr;
    std::size_t bytes = 0;
  };

  void give(const Call& call) {
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

  void take_from(const Call& call) {
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
  std::vector<Part<Byte>> split(Byte* data, const std::size_t* counts, std::size_t count) const {
    std::vector<Part<Byte>> parts(ranks_);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      parts[rank] = {.at = data,
                     .bytes = (counts != nullptr ? counts[rank] : count) * element_bytes_};
      data += parts[rank].bytes;
    }
    return parts;
  }

  // The bytes of a part that a turn moves.
  std::size_t bytes_now(std::size_t part_bytes, std::size_t turn) const {
    const std::size_t before = turn * lane_bytes_;
    return part_bytes <= before ? 0 : std::min(lane_bytes_, part_bytes - before);
  }

  void reduce(std::size_t turn) {
    const Part<std::byte>& part = taken_[own_];
    const std::size_t bytes = bytes_now(part.bytes, turn);
    if (bytes == 0) return;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      sources_[rank] = rounds_.of(static_cast<int>(rank)) + own_ * lane_bytes_;
    }
    sources_[own_] = given_[own_].at + turn * lane_bytes_;
    reduction_(part.at + turn * lane_bytes_, sources_, bytes);
  }

  void keep_own() const {
    if (given_.empty()) return;
    copy_bytes(taken_[own_].at, given_[has_lanes_ ? own_ : 0].at, taken_[own_].bytes);
  }

  Rounds& rounds_;
  const std::size_t own_;
  const std::size_t ranks_;
  const std::size_t element_bytes_;
  const bool has_lanes_;
  const bool is_reduced_;
  const std::size_t longest_bytes_;
  const std::size_t lane_bytes_;
  const Reduction reduction_;
  std::vector<Part<const std::byte>> given_;  // one for all ranks, or one per rank
  std::vector<Part<std::byte>> taken_;        // from each rank; the same one for all in a reduction
  Sources sources_;
};

}  // namespace

void with_algorithm(Rounds& rounds, const Call& call, Deadline deadline, std::size_t longest_bytes,
                    const std::function<void(Algorithm&)>& use) {
  if (call.operation == Operation::AllReduce || call.operation == Operation::Reduce) {
    Sum sum(rounds, call, deadline);
    return use(sum);
  }
  Exchange exchange(rounds, call, longest_bytes);
  use(exchange);
}

}  // namespace drun::worker::shm
