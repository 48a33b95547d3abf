#include "worker_lib/shm/sum.h"

#include <algorithm>
#include <cstring>

namespace drun::worker::shm {

namespace {

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

// Read from one rank at a time.
constexpr std::size_t kReadBytes = 128 * 1024;

}  // namespace

Sum::Sum(Rounds& rounds, const Call& call, Deadline deadline)
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

std::size_t Sum::turns() const { return (bytes_ + kPayloadBytes - 1) / kPayloadBytes; }

Sum::Span Sum::turn_span(std::size_t turn) const {
  const std::size_t begin = turn * kPayloadBytes;
  return {.begin = begin, .bytes = std::min(kPayloadBytes, bytes_ - begin)};
}

// Shares are whole cache lines, so that no two ranks write to the same line.
Sum::Span Sum::share_of(std::size_t rank, std::size_t bytes) const {
  const std::size_t most = (bytes / ranks_ / kLineBytes + 1) * kLineBytes;
  const std::size_t begin = std::min(bytes, rank * most);
  return {.begin = begin, .bytes = std::min(most, bytes - begin)};
}

void Sum::put(std::size_t turn) {
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

void Sum::take(std::size_t turn) {
  const Span now = turn_span(turn);
  if (is_short_) return reduce_whole(now);
  reduce_share(now);
  rounds_.meet(deadline_);
  collect_shares(now);
}

void Sum::reduce_whole(const Span& now) {
  if (output_ == nullptr) return;
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    sources_[rank] = rounds_.of(static_cast<int>(rank));
  }
  sources_[own_] = input_ + now.begin;
  reduction_(output_ + now.begin, sources_, now.bytes);
}

void Sum::reduce_share(const Span& now) {
  const Span share = share_of(own_, now.bytes);
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    sources_[rank] = rounds_.of(static_cast<int>(rank)) + share.begin;
  }
  sources_[own_] = input_ + now.begin + share.begin;
  std::byte* const shown = rounds_.mine() + share.begin;
  if (output_ == nullptr) return reduction_(shown, sources_, share.bytes);
  std::vector<std::byte*> others;
  if (is_for_all_) others.push_back(shown);
  reduction_(output_ + now.begin + share.begin, sources_, share.bytes, others);
}

void Sum::collect_shares(const Span& now) {
  if (output_ == nullptr) return;
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    if (rank == own_) continue;
    const Span share = share_of(rank, now.bytes);
    std::memcpy(output_ + now.begin + share.begin, rounds_.of(static_cast<int>(rank)) + share.begin,
                share.bytes);
  }
}

void Sum::take_directly(const std::vector<std::byte*>& buffers) {
  if (output_ == nullptr) return;
  const Span share = is_for_all_ ? share_of(own_, bytes_) : Span{.begin = 0, .bytes = bytes_};
  std::vector<std::byte*> others;
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    sources_[rank] = buffers[rank] + share.begin;
    if (is_for_all_ && rank != own_) others.push_back(buffers[rank] + share.begin);
  }
  reduction_(output_ + share.begin, sources_, share.bytes, others);
}

std::size_t Sum::reads() const { return is_for_all_ && is_read(bytes_, ranks_) ? 2 : 0; }

bool Sum::read(std::size_t step, const PeerBuffers& peers) {
  return step == 0 ? read_share(peers) : read_results(peers);
}

// Uses this rank's station as the buffer for reads, because no rank reads it now.
bool Sum::read_share(const PeerBuffers& peers) {
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

bool Sum::read_results(const PeerBuffers& peers) {
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    const Span share = share_of(rank, bytes_);
    if (rank != own_ && !peers.read(rank, share.begin, output_ + share.begin, share.bytes)) {
      return false;
    }
  }
  return true;
}

}  // namespace drun::worker::shm
