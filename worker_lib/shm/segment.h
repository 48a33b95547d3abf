// core. The layout of the memory that the ranks of a group share.
//
//     abort flag | lost | bells: two per rank | homes | stations: two per rank | rings: one per
//     ordered pair of ranks
//
// Memory:  initially zero. Pages are allocated on first use: 8 ranks have 25 MB of addresses, but
//          use only a few pages for small operations. Beyond 32 ranks, rings are small: 64 ranks
//          have 135 MB of addresses, 128 have 406 MB.
// Thread:  all processes change the words concurrently; the comment of each type defines the order.
#pragma once

#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "rendezvous/base/unique_fd.h"
#include "worker_lib/base/signature.h"

namespace drun::worker::shm {

using Word = std::atomic<std::uint32_t>;
using LongWord = std::atomic<std::uint64_t>;
// Atomics between processes must be lock-free: a lock inside the library would not be shared.
static_assert(Word::is_always_lock_free && LongWord::is_always_lock_free);
static_assert(sizeof(Word) == 4 && sizeof(LongWord) == 8);

constexpr std::size_t kLineBytes = 64;

// See abort_flag.h.
struct alignas(kLineBytes) AlarmWords {
  Word changes;  // number of changes so far
  Word reason;
};

// The futex on which a rank sleeps; see wait.h.
struct alignas(kLineBytes) WakeFlag {
  Word rings;
  Word sleepers;
};

// Identifies a rank's process and memory; see peer_memory.h.
struct alignas(kLineBytes) Home {
  LongWord token;    // written last
  LongWord address;  // of the token in that process
  Word pid;
};

// The header of a station (rounds.h). The payload follows directly, so that a short payload is in
// the same cache line as the stamp and arrives with it.
struct alignas(kLineBytes / 2) Station {
  Word stamp;                // number of the round plus one; written last
  std::uint32_t region = 0;  // region of the caller's buffer, if all ranks can access it; 0: none
  std::uint64_t offset = 0;  // within this rank's part of the region
  Signature signature = {};
};
static_assert(sizeof(Station) == kLineBytes / 2);

// The header of a ring from one rank to another (ring.h). The bytes follow directly.
struct RingEnds {
  alignas(kLineBytes) LongWord written;  // bytes written by the sender so far
  Word wants_room;                       // the sender is waiting for room
  alignas(kLineBytes) LongWord read;     // bytes read by the receiver so far
  LongWord settled;  // bytes of short messages matched with a recv so far; messages.h
};
static_assert(sizeof(RingEnds) == 2 * kLineBytes);

// A power of two, like most data sizes, so that the last turn is often a full one.
constexpr std::size_t kPayloadBytes = 512 * 1024;
constexpr std::size_t kStationBytes = kPayloadBytes + 4096;  // whole pages
// Powers of two.
constexpr std::size_t kRingBytes = 256 * 1024;
constexpr std::size_t kSmallRingBytes = 16 * 1024;
constexpr std::size_t kMostWithLargeRings = 32;  // ranks

// The offsets of all parts for a group of `size` ranks.
class Layout {
 public:
  explicit Layout(int size) : size_(static_cast<std::size_t>(size)) {}

  static constexpr std::size_t alarm() { return 0; }
  // One word per rank: whether its process has ended.
  static std::size_t lost(int rank) { return sizeof(AlarmWords) + at(rank) * sizeof(Word); }
  // One bell wakes the rank when other ranks reach a round, the other one for messages.
  std::size_t round_bell(int rank) const { return bells() + at(rank) * sizeof(WakeFlag); }
  std::size_t message_bell(int rank) const { return round_bell(rank) + size_ * sizeof(WakeFlag); }
  std::size_t home(int rank) const { return homes() + at(rank) * sizeof(Home); }
  std::size_t station(int rank, std::uint32_t round) const {
    return stations() + (at(rank) * 2 + round % 2) * kStationBytes;
  }
  std::size_t ring(int from, int to) const {
    return rings() + (at(from) * size_ + at(to)) * (sizeof(RingEnds) + ring_bytes());
  }
  std::size_t ring_bytes() const {
    return size_ <= kMostWithLargeRings ? kRingBytes : kSmallRingBytes;
  }
  std::size_t size_bytes() const {
    return rings() + size_ * size_ * (sizeof(RingEnds) + ring_bytes());
  }

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  static std::size_t round_up(std::size_t bytes, std::size_t to) {
    return (bytes + to - 1) / to * to;
  }
  std::size_t bells() const {
    return round_up(sizeof(AlarmWords) + size_ * sizeof(Word), kLineBytes);
  }
  std::size_t homes() const { return bells() + 2 * size_ * sizeof(WakeFlag); }
  std::size_t stations() const {
    constexpr std::size_t kPageBytes = 4096;
    return round_up(homes() + size_ * sizeof(Home), kPageBytes);
  }
  std::size_t rings() const { return stations() + size_ * 2 * kStationBytes; }

  std::size_t size_;
};

// --- Memory without a name in any file system
//
// Processes receive its descriptor, and it is freed with the last one. Errors: throws
// BackendFailure (System).

// The memory is zero. It can grow but never shrink, so that no access to mapped memory can fail.
UniqueFd create_memory(std::size_t size_bytes);
void grow_memory(int fd, std::size_t size_bytes);

// A mapping, unmapped by the destructor.
class Mapping {
 public:
  // Maps `size_bytes` from `offset` of fd. The caller can close fd afterwards.
  Mapping(int fd, std::size_t offset, std::size_t size_bytes);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

// --- The parts of a segment. Copies refer to the same memory and keep the mapping alive.

class Segment {
 public:
  // Requires a mapping of Layout(size).size_bytes().
  Segment(std::shared_ptr<const Mapping> mapping, int size)
      : mapping_(std::move(mapping)), layout_(size), size_(size) {
    assert(mapping_->size_bytes() >= layout_.size_bytes());
  }

  int size() const { return size_; }
  AlarmWords& alarm() const { return at<AlarmWords>(Layout::alarm()); }
  Word& lost(int rank) const { return at<Word>(Layout::lost(rank)); }
  WakeFlag& round_bell(int rank) const { return at<WakeFlag>(layout_.round_bell(rank)); }
  WakeFlag& message_bell(int rank) const { return at<WakeFlag>(layout_.message_bell(rank)); }
  Home& home(int rank) const { return at<Home>(layout_.home(rank)); }
  Station& station(int rank, std::uint32_t round) const {
    return at<Station>(layout_.station(rank, round));
  }
  std::byte* payload(int rank, std::uint32_t round) const {
    return mapping_->data() + layout_.station(rank, round) + sizeof(Station);
  }
  RingEnds& ring_ends(int from, int to) const { return at<RingEnds>(layout_.ring(from, to)); }
  std::byte* ring_bytes(int from, int to) const {
    return mapping_->data() + layout_.ring(from, to) + sizeof(RingEnds);
  }
  // A power of two.
  std::size_t ring_size_bytes() const { return layout_.ring_bytes(); }

 private:
  template <typename T>
  T& at(std::size_t offset) const {
    return *reinterpret_cast<T*>(mapping_->data() + offset);
  }

  std::shared_ptr<const Mapping> mapping_;
  Layout layout_;
  int size_;
};

}  // namespace drun::worker::shm
