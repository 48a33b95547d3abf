// core. Sends frames from one rank to another, in order, through a ring buffer in shared memory.
//
// A writer without room sets a flag; the reader then wakes it when there is room.
// Thread:  one at a time at each end.
// Errors:  next throws BackendFailure (System) if the ring is invalid. Its lengths are written by
//          another process and are always checked.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "worker_lib/shm/segment.h"

namespace drun::worker::shm {

enum class FrameKind : std::uint32_t {
  Short,  // a whole message
  Offer,  // announces a message, whose data is sent on request
  Grant,  // to the sender of an offer: send the data
  Data,   // part of a requested message
  Taken,  // to the sender of an offer: its data was read from its memory
};

struct Frame {
  FrameKind kind = FrameKind::Short;
  std::uint32_t tag = 0;      // for Short, Offer
  std::uint64_t number = 0;   // of the message; not for Short
  std::uint64_t bytes = 0;    // number of bytes that follow
  std::uint64_t address = 0;  // for Offer: of the data in the sender's memory
  Signature signature = {};   // for Short, Offer
};

constexpr std::size_t kMostFrameBytes = kRingBytes / 4 - sizeof(Frame);
// The longest short message, in a ring of `ring_bytes`: one frame, so that it must fit. Two copies
// of 32 KB take as long as a read of the sender's memory with its system call and its replies.
constexpr std::size_t short_bytes(std::size_t ring_bytes) {
  return std::min<std::size_t>(32 * 1024, ring_bytes / 2);
}
static_assert(short_bytes(kRingBytes) <= kMostFrameBytes &&
              short_bytes(kSmallRingBytes) + sizeof(Frame) <= kSmallRingBytes);

class RingWriter {
 public:
  RingWriter(const Segment& segment, int from, int to)
      : ends_(&segment.ring_ends(from, to)),
        bytes_(segment.ring_bytes(from, to)),
        size_bytes_(segment.ring_size_bytes()) {}

  // Of a part of a message.
  std::size_t most_frame_bytes() const { return size_bytes_ / 4 - sizeof(Frame); }
  // Of a short message.
  std::size_t most_short_bytes() const { return short_bytes(size_bytes_); }
  // False if there is no room; the reader will then wake this rank. Requires frame.bytes <=
  // most_frame_bytes() or most_short_bytes().
  bool push(const Frame& frame, const std::byte* payload);
  std::uint64_t settled_bytes() const { return ends_->settled.load(); }

 private:
  bool has_room(std::size_t bytes);
  void copy_in(std::uint64_t at, const void* from, std::size_t bytes);

  RingEnds* ends_;
  std::byte* bytes_;
  std::size_t size_bytes_;
  std::uint64_t written_ = 0;
  std::uint64_t seen_read_ = 0;  // cached: the reader's cache line is read only if needed
};

class RingReader {
 public:
  RingReader(const Segment& segment, int from, int to)
      : ends_(&segment.ring_ends(from, to)),
        bytes_(segment.ring_bytes(from, to)),
        size_bytes_(segment.ring_size_bytes()),
        from_(from) {}

  // Thread: any.
  bool has_frames() const { return ends_->written.load() != ends_->read.load(); }
  // The oldest frame, which stays in the ring; absent: the ring is empty.
  std::optional<Frame> next() const;
  // Removes that frame and copies its bytes to `to`, unless null. True if the writer waits for
  // room.
  bool take(const Frame& frame, std::byte* to);
  void settle(std::size_t bytes) { ends_->settled.fetch_add(bytes); }

 private:
  void copy_out(std::uint64_t at, void* to, std::size_t bytes) const;

  RingEnds* ends_;
  const std::byte* bytes_;
  std::size_t size_bytes_;
  int from_;
  std::uint64_t read_ = 0;
};

}  // namespace drun::worker::shm
