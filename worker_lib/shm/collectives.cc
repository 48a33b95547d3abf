#include "worker_lib/shm/collectives.h"

#include <algorithm>
#include <bit>
#include <boost/container/small_vector.hpp>
#include <cassert>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "worker_lib/algorithms/exchange.h"
#include "worker_lib/base/signature.h"
#include "worker_lib/math/reduce.h"

namespace drun::worker::shm {

// --- The algorithms that move one collective's data through the stations, in turns of at most a
// station's size.
//
// all_reduce and reduce:
//   Short:   every rank puts its whole input; the ranks that need the result reduce all inputs. One
//            meeting.
//   Long:    per turn, each rank reduces its share from the data that the others have put, and puts
//            the result. After a second meeting, the ranks that need the result copy all shares.
//   Direct:  each rank reduces its share from all buffers into all buffers.
//   Read:    each rank reads the others' data of its share, a block at a time, and reduces it; then
//            it reads the others' shares.
//
// The others move parts between ranks. Data for all ranks uses the whole station. If each rank gets
// a different part, the station is divided into one lane per rank. The parts of reduce_scatter are
// reduced by their receivers.
//
// Result:  reductions go from left to right, so that the result has the same bits on every rank.
// One of these ways is used:
//   put and take, alternately, with a meeting between them;
//   take_directly, if all ranks' buffers are in one region and all parts have the same size;
//   read, reads() times, with a meeting after each, if every rank can read the others' memory.
class Algorithm {
 public:
  virtual ~Algorithm() = default;

  // The number of turns of put and take; the same on every rank.
  virtual std::size_t turns() const = 0;
  // Writes this rank's data of that turn to its station.
  virtual void put(std::size_t turn) = 0;
  // Reads the data that the other ranks have put.
  virtual void take(std::size_t turn) = 0;
  // buffers[rank]: that rank's input, or its buffer that is reduced in place.
  virtual void take_directly(const std::vector<std::byte*>& buffers) = 0;
  // The number of reads; 0 if reading is not faster. The same on every rank.
  virtual std::size_t reads() const { return 0; }
  // False if some data could not be read.
  virtual bool read(std::size_t, const PeerBuffers&) { return true; }
};

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
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

class MovedParts final : public Algorithm {
 public:
  // `longest_bytes`: the size of the longest part between any two ranks.
  MovedParts(Rounds& rounds, const Call& call, std::size_t longest_bytes)
      : rounds_(rounds),
        own_(rounds.rank()),
        ranks_(rounds.size()),
        root_(call.root),
        has_lanes_(shape_of(call.operation).splits_input),
        is_reduced_(call.operation == Operation::ReduceScatter),
        longest_bytes_(longest_bytes),
        lane_bytes_(has_lanes_ ? kPayloadBytes / index(ranks_) / kLineBytes * kLineBytes
                               : kPayloadBytes),
        reduction_(call, ranks_),
        moves_(call, own_, ranks_),
        sources_(index(ranks_)) {}

  std::size_t turns() const override { return (longest_bytes_ + lane_bytes_ - 1) / lane_bytes_; }

  void put(std::size_t turn) override {
    for (int lane = 0; lane < (has_lanes_ ? ranks_ : 1); ++lane) {
      if (has_lanes_ && lane == own_) continue;
      const auto part = moves_.sent_to(has_lanes_ ? lane : root_);
      const std::size_t bytes = bytes_now(part.size_bytes, turn);
      if (bytes > 0)
        copy_bytes(rounds_.mine() + begin_of(lane), part.data + turn * lane_bytes_, bytes);
    }
  }

  void take(std::size_t turn) override {
    if (is_reduced_) return reduce(turn);
    if (turn == 0) keep_own();
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto part = moves_.received_from(rank);
      const std::size_t bytes = bytes_now(part.size_bytes, turn);
      if (rank == own_ || bytes == 0) continue;  // without bytes, `data` may be null
      copy_bytes(part.data + turn * lane_bytes_, rounds_.of(rank) + own_lane(), bytes);
    }
  }

  void take_directly(const std::vector<std::byte*>& buffers) override {
    const auto own = moves_.received_from(own_);
    const std::size_t begin = has_lanes_ ? index(own_) * own.size_bytes : 0;
    if (is_reduced_) {
      for (std::size_t i = 0; i < buffers.size(); ++i) sources_[i] = buffers[i] + begin;
      return reduction_(own.data, sources_, own.size_bytes);
    }
    keep_own();
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto part = moves_.received_from(rank);
      if (rank != own_) copy_bytes(part.data, buffers[index(rank)] + begin, part.size_bytes);
    }
  }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  std::size_t begin_of(int lane) const { return index(lane) * lane_bytes_; }
  // Where this rank's data begins in the others' stations.
  std::size_t own_lane() const { return has_lanes_ ? begin_of(own_) : 0; }

  // The bytes of a part that a turn moves.
  std::size_t bytes_now(std::size_t part_bytes, std::size_t turn) const {
    const std::size_t before = turn * lane_bytes_;
    return part_bytes <= before ? 0 : std::min(lane_bytes_, part_bytes - before);
  }

  void reduce(std::size_t turn) {
    const auto part = moves_.received_from(own_);
    const std::size_t bytes = bytes_now(part.size_bytes, turn);
    if (bytes == 0) return;
    for (int rank = 0; rank < ranks_; ++rank) {
      sources_[index(rank)] = rounds_.of(rank) + own_lane();
    }
    sources_[index(own_)] = moves_.sent_to(own_).data + turn * lane_bytes_;
    reduction_(part.data + turn * lane_bytes_, sources_, bytes);
  }

  void keep_own() const {
    const auto part = moves_.received_from(own_);
    const std::byte* const own = moves_.sent_to(own_).data;
    if (own != nullptr) copy_bytes(part.data, own, part.size_bytes);
  }

  Rounds& rounds_;
  const int own_;
  const int ranks_;
  const int root_;
  const bool has_lanes_;  // a part of the station for each receiver; otherwise one for all
  const bool is_reduced_;
  const std::size_t longest_bytes_;
  const std::size_t lane_bytes_;
  const Reduction reduction_;
  const PartMoves moves_;
  Sources sources_;
};

// --- What all algorithms have in common

using Kind = WorkerError::Kind;

// Copying shorter buffers is faster than a last meeting.
constexpr std::size_t kDirectBytes = 16 * 1024;

// Instead of a region: the offset is an address in the rank's own memory.
constexpr std::uint32_t kOwnMemory = ~std::uint32_t{0};

// The buffer of a call that other ranks could read in place.
struct Buffer {
  const void* data = nullptr;
  std::size_t bytes = 0;
};
Buffer buffer_of(const Call& call, int ranks) {
  const std::size_t bytes = call.count * size_bytes(call.type);
  if (call.is_uneven) return {};
  switch (call.operation) {
    case Operation::AllReduce:
    case Operation::Broadcast:
      return {.data = call.output, .bytes = bytes};
    case Operation::Reduce:
    case Operation::Gather:
    case Operation::AllGather:
      return {.data = call.input, .bytes = bytes};
    case Operation::ReduceScatter:
    case Operation::AllToAll:
      return {.data = call.input, .bytes = bytes * static_cast<std::size_t>(ranks)};
    default:
      return {};
  }
}

// The size of the longest part between two ranks, for a call whose sizes every rank knows.
std::size_t longest_part_bytes(const Call& call, int size) {
  std::size_t longest = call.count;
  const std::size_t* counts =
      call.operation == Operation::AllGather ? call.counts_out : call.counts_in;
  if (call.is_uneven) longest = *std::max_element(counts, counts + size);
  return longest * size_bytes(call.type);
}

}  // namespace

void Collectives::run(const Call& call, const Turn& turn) {
  if (call.operation == Operation::Barrier) {
    open(signature_of(call, rounds_.size()), std::nullopt, turn);
    return;
  }
  const bool is_told = has_private_counts(call);
  const std::size_t longest =
      is_told ? agree_on_sizes(call, turn) : longest_part_bytes(call, rounds_.size());
  if (call.operation == Operation::AllReduce || call.operation == Operation::Reduce) {
    Sum sum(rounds_, call, turn.deadline);
    return perform(call, turn, sum, is_told);
  }
  MovedParts parts(rounds_, call, longest);
  perform(call, turn, parts, is_told);
}

void Collectives::perform(const Call& call, const Turn& turn, Algorithm& algorithm, bool is_open) {
  if (is_open) return move_in_turns(algorithm, 0, turn.deadline);
  const std::optional<Place> place = place_of(call, algorithm);
  if (!place && algorithm.turns() > 0) algorithm.put(0);
  switch (open(signature_of(call, rounds_.size()), place, turn)) {
    case Way::Direct:
      return move_directly(call, algorithm, turn.deadline);
    case Way::Read:
      return move_by_reading(call, algorithm, turn.deadline);
    case Way::InTurns:
      return move_in_turns(algorithm, 0, turn.deadline);
    case Way::WithData:
      if (algorithm.turns() > 0) algorithm.take(0);
      return move_in_turns(algorithm, 1, turn.deadline);
  }
}

void Collectives::move_in_turns(Algorithm& algorithm, std::size_t first, Deadline deadline) {
  for (std::size_t turn = first; turn < algorithm.turns(); ++turn) {
    algorithm.put(turn);
    rounds_.meet(deadline);
    algorithm.take(turn);
  }
}

void Collectives::move_directly(const Call& call, Algorithm& algorithm, Deadline deadline) {
  const std::size_t bytes = buffer_of(call, rounds_.size()).bytes;
  std::vector<std::byte*> buffers;
  for (int rank = 0; rank < rounds_.size(); ++rank) {
    const Station& station = rounds_.station_of(rank);
    const Place place{.region = station.region, .offset = station.offset};
    buffers.push_back(regions_.at(rank, place, bytes));
    if (buffers.back() != nullptr) continue;
    throw BackendFailure(Kind::System, rank,
                         "rank " + std::to_string(rank) + "'s buffer is outside its region");
  }
  algorithm.take_directly(buffers);
  rounds_.check_alarm();
  rounds_.meet(deadline);
}

void Collectives::move_by_reading(const Call& call, Algorithm& algorithm, Deadline deadline) {
  std::vector<std::uint64_t> addresses;
  addresses.reserve(static_cast<std::size_t>(rounds_.size()));
  for (int rank = 0; rank < rounds_.size(); ++rank) {
    addresses.push_back(rounds_.station_of(rank).offset);
  }
  const PeerBuffers buffers(peers_, rounds_.rank(), std::move(addresses),
                            buffer_of(call, rounds_.size()).bytes);
  if (!are_all_well(buffers.are_there(), deadline)) return move_in_turns(algorithm, 0, deadline);
  for (std::size_t step = 0; step < algorithm.reads(); ++step) {
    const bool is_well = algorithm.read(step, buffers);
    rounds_.check_alarm();
    if (are_all_well(is_well, deadline)) continue;
    // A rank that has ended since, with its memory, cannot reach this meeting.
    rounds_.meet(deadline);
    throw BackendFailure(Kind::System,
                         "another rank's buffer can be read at its ends, but not in between");
  }
}

bool Collectives::are_all_well(bool is_well, Deadline deadline) {
  rounds_.my_station().region = is_well ? kOwnMemory : 0;
  rounds_.meet(deadline);
  for (int rank = 0; rank < rounds_.size(); ++rank) {
    if (rounds_.station_of(rank).region != kOwnMemory) return false;
  }
  return true;
}

// What this rank has said it does not read again: it may be on its way out of this core still.
Collectives::Way Collectives::open(Signature signature, const std::optional<Place>& place,
                                   const Turn& turn) {
  const std::uint32_t region = place ? place->region : 0;
  Station& mine = rounds_.my_station();
  mine.signature = signature;
  mine.region = region;
  mine.offset = place ? place->offset : 0;
  rounds_.meet(turn.deadline);
  bool is_agreed = true;
  bool is_same_region = true;
  bool is_any_region = region != 0;
  for (int rank = 0; rank < rounds_.size(); ++rank) {
    if (rank == rounds_.rank()) continue;
    const Station& station = rounds_.station_of(rank);
    is_agreed = is_agreed && station.signature == signature;
    is_same_region = is_same_region && station.region == region;
    is_any_region = is_any_region || station.region != 0;
  }
  if (!is_agreed) check_calls(turn);
  if (!is_any_region) return Way::WithData;
  if (!is_same_region) return Way::InTurns;
  return region == kOwnMemory ? Way::Read : Way::Direct;
}

void Collectives::check_calls(const Turn& turn) const {
  std::vector<Signature> all;
  all.reserve(static_cast<std::size_t>(rounds_.size()));
  for (int rank = 0; rank < rounds_.size(); ++rank) {
    all.push_back(rounds_.station_of(rank).signature);
  }
  check_same_calls(turn.sequence, all);
}

std::size_t Collectives::agree_on_sizes(const Call& call, const Turn& turn) {
  const int size = rounds_.size();
  const PartCounts mine = part_counts(call, rounds_.rank(), size);
  const std::size_t bytes = mine.size() * sizeof mine[0];
  std::memcpy(rounds_.mine(), mine.data(), bytes);
  open(signature_of(call, size), std::nullopt, turn);
  // From other processes, and only compared as numbers.
  PartCounts all(mine.size() * static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    std::memcpy(&all[mine.size() * static_cast<std::size_t>(rank)], rounds_.of(rank), bytes);
  }
  check_part_counts(call, turn.sequence, all, size);
  return *std::max_element(all.begin(), all.end()) * size_bytes(call.type);
}

std::optional<Place> Collectives::place_of(const Call& call, const Algorithm& algorithm) const {
  const Buffer buffer = buffer_of(call, rounds_.size());
  if (buffer.bytes <= kDirectBytes) return {};
  if (auto place = regions_.find(buffer.data, buffer.bytes)) return place;
  if (algorithm.reads() == 0 || !peers_.seems_open()) return {};
  return Place{.region = kOwnMemory, .offset = reinterpret_cast<std::uintptr_t>(buffer.data)};
}

std::shared_ptr<void> Collectives::alloc(std::size_t size_bytes, const Turn& turn) {
  // No call has this signature, so that it differs from all of them.
  const Signature signature{.what = ~std::uint64_t{0}};
  const std::uint64_t wanted = size_bytes;
  std::memcpy(rounds_.mine(), &wanted, sizeof wanted);
  open(signature, std::nullopt, turn);
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(rounds_.size()));
  for (int rank = 0; rank < rounds_.size(); ++rank) {
    std::memcpy(&sizes[static_cast<std::size_t>(rank)], rounds_.of(rank), sizeof wanted);
  }
  if (rounds_.rank() == 0) regions_.grow(sizes);
  rounds_.meet(turn.deadline);
  return regions_.map(sizes);
}

}  // namespace drun::worker::shm
