// edge. The memory that the ranks of a group share: the segment, of a fixed layout, and the
// regions, which alloc_shared adds for buffers.
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
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "rendezvous/base/unique_fd.h"
#include "worker_lib/base/signature.h"

namespace drun::worker::shm {

using Word = std::atomic<std::uint32_t>;
using LongWord = std::atomic<std::uint64_t>;
// Atomics between processes must be lock-free: a lock inside the library would not be shared.
static_assert(Word::is_always_lock_free && LongWord::is_always_lock_free);
static_assert(sizeof(Word) == 4 && sizeof(LongWord) == 8);

constexpr std::size_t kLineBytes = 64;

// See AbortFlag in wait.h.
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

// The header of a ring from one rank to another (link.h). The bytes follow directly.
struct RingEnds {
  alignas(kLineBytes) LongWord written;  // bytes written by the sender so far
  Word wants_room;                       // the sender is waiting for room
  alignas(kLineBytes) LongWord read;     // bytes read by the receiver so far
  LongWord settled;  // bytes of short messages matched with a recv so far; shm_backend.cc
};
static_assert(sizeof(RingEnds) == 2 * kLineBytes);

// A power of two, like most data sizes, so that the last turn is often a full one.
constexpr std::size_t kPayloadBytes = 512 * 1024;
constexpr std::size_t kStationBytes = kPayloadBytes + 4096;  // whole pages
// Powers of two.
constexpr std::size_t kRingBytes = 256 * 1024;
constexpr std::size_t kSmallRingBytes = 16 * 1024;
constexpr int kMostWithLargeRings = 32;  // ranks

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

 private:
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

// --- The parts of a segment. Copies refer to the same memory and keep the mapping alive.

class Segment {
 public:
  // For a group of `size` ranks.
  static std::size_t bytes_for(int size) {
    const Segment layout(size);
    return layout.ring_at(size, 0);
  }
  // Maps memory of bytes_for(size). The caller can close fd afterwards.
  Segment(int fd, int size) : Segment(size) {
    mapping_ = std::make_shared<const Mapping>(fd, 0, bytes_for(size));
    data_ = mapping_->data();
  }

  int size() const { return size_; }
  AlarmWords& alarm() const { return at<AlarmWords>(0); }
  // Whether that rank's process has ended.
  Word& lost(int rank) const { return at<Word>(sizeof(AlarmWords) + index(rank) * sizeof(Word)); }
  // One bell wakes the rank when other ranks reach a round, the other one for messages.
  WakeFlag& round_bell(int rank) const {
    return at<WakeFlag>(bells_ + index(rank) * sizeof(WakeFlag));
  }
  WakeFlag& message_bell(int rank) const {
    return at<WakeFlag>(bells_ + index(size_ + rank) * sizeof(WakeFlag));
  }
  Home& home(int rank) const { return at<Home>(homes_ + index(rank) * sizeof(Home)); }
  Station& station(int rank, std::uint32_t round) const {
    return at<Station>(stations_ + (index(rank) * 2 + round % 2) * kStationBytes);
  }
  std::byte* payload(int rank, std::uint32_t round) const {
    return reinterpret_cast<std::byte*>(&station(rank, round) + 1);
  }
  RingEnds& ring_ends(int from, int to) const { return at<RingEnds>(ring_at(from, to)); }
  std::byte* ring_bytes(int from, int to) const {
    return reinterpret_cast<std::byte*>(&ring_ends(from, to) + 1);
  }
  // A power of two.
  std::size_t ring_size_bytes() const {
    return size_ <= kMostWithLargeRings ? kRingBytes : kSmallRingBytes;
  }

 private:
  // Only the offsets of the parts.
  explicit Segment(int size)
      : size_(size),
        bells_(whole(sizeof(AlarmWords) + index(size) * sizeof(Word), kLineBytes)),
        homes_(bells_ + 2 * index(size) * sizeof(WakeFlag)),
        stations_(whole(homes_ + index(size) * sizeof(Home), kPageBytes)),
        rings_(stations_ + 2 * index(size) * kStationBytes) {}

  static constexpr std::size_t kPageBytes = 4096;
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  static std::size_t whole(std::size_t bytes, std::size_t unit) {
    return (bytes + unit - 1) / unit * unit;
  }
  std::size_t ring_at(int from, int to) const {
    return rings_ + index(from * size_ + to) * (sizeof(RingEnds) + ring_size_bytes());
  }
  template <typename T>
  T& at(std::size_t offset) const {
    return *reinterpret_cast<T*>(data_ + offset);
  }

  int size_;
  std::size_t bells_;
  std::size_t homes_;
  std::size_t stations_;
  std::size_t rings_;
  std::shared_ptr<const Mapping> mapping_;
  std::byte* data_ = nullptr;
};

// --- Regions: memory for buffers that all ranks can access. All ranks create a region together,
// and each has a part of the size that it requested.
//
// All regions are pieces of one unnamed file that only grows. Offsets in it are never reused, and
// dropping a part frees its pages at once.
// Owner:   a region stays mapped in this process until its rank's part is dropped, or this object
//          is destroyed.
// Thread:  any.   Errors: throws BackendFailure (System).

// The place of a rank's buffer in the regions, which it publishes.
struct Place {
  std::uint32_t region = 0;  // from 1
  std::uint64_t offset = 0;  // within the rank's part
};

class Regions {
 public:
  Regions(UniqueFd memory, int rank);

  // Create the next region: first grow() on one rank, then map() on all ranks, with the same sizes.
  void grow(const std::vector<std::uint64_t>& part_bytes);
  std::shared_ptr<void> map(const std::vector<std::uint64_t>& part_bytes);

  // The place of a buffer; absent if it is not in this rank's own part of a region.
  std::optional<Place> find(const void* data, std::size_t size_bytes);
  // Another rank's buffer; null if this rank has no such region, or the region ends before it.
  std::byte* at(int rank, const Place& place, std::size_t size_bytes);

 private:
  struct Region;

  std::shared_ptr<const UniqueFd> memory_;
  const int rank_;
  std::mutex mutex_;
  std::list<std::weak_ptr<Region>> regions_;
  std::uint32_t next_region_ = 1;
  std::uint64_t end_bytes_ = 0;
};

}  // namespace drun::worker::shm
