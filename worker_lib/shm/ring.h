// core. Frames from one rank to one other, in order, through a ring in shared memory.
//
// Room:    a writer without room sets a flag; the reader that makes room then wakes it.
// Thread:  one at a time at each end.
// Errors:  next throws BackendFailure (System) for a ring with nonsense in it: its lengths are
//          another process's and never trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "worker_lib/shm/segment.h"

namespace drun::worker::shm {

enum class FrameKind : std::uint32_t {
  Short,  // a whole message
  Offer,  // of a message, whose data comes when it is asked for
  Grant,  // to the sender of an offer: send
  Data,   // of a message that was asked for
  Taken,  // to the sender of an offer: its data was read where it is
};

struct Frame {
  FrameKind kind = FrameKind::Short;
  std::uint32_t tag = 0;      // of Short, Offer
  std::uint64_t number = 0;   // of the message; of all but Short
  std::uint64_t bytes = 0;    // that follow
  std::uint64_t address = 0;  // of Offer: where the data is in the sender's memory
  Signature signature = {};   // of Short, Offer
};

constexpr std::size_t kMostFrameBytes = kRingBytes / 4 - sizeof(Frame);

class RingWriter {
 public:
  RingWriter(const Segment& segment, int from, int to)
      : ends_(&segment.ring_ends(from, to)), bytes_(segment.ring_bytes(from, to)) {}

  // False: no room; the reader will wake this rank. Requires frame.bytes <= kMostFrameBytes.
  bool push(const Frame& frame, const std::byte* payload);
  std::uint64_t settled_bytes() const { return ends_->settled.load(); }

 private:
  bool has_room(std::size_t bytes);
  void copy_in(std::uint64_t at, const void* from, std::size_t bytes);

  RingEnds* ends_;
  std::byte* bytes_;
  std::uint64_t written_ = 0;
  std::uint64_t seen_read_ = 0;  // the reader's line is fetched only when it matters
};

class RingReader {
 public:
  RingReader(const Segment& segment, int from, int to)
      : ends_(&segment.ring_ends(from, to)), bytes_(segment.ring_bytes(from, to)), from_(from) {}

  // The oldest frame, which stays. Nothing: there is none.
  std::optional<Frame> next() const;
  // Its bytes to `to`, or nowhere; and it goes. True: the writer waits for room.
  bool take(const Frame& frame, std::byte* to);
  void settle(std::size_t bytes) { ends_->settled.fetch_add(bytes); }

 private:
  void copy_out(std::uint64_t at, void* to, std::size_t bytes) const;

  RingEnds* ends_;
  const std::byte* bytes_;
  int from_;
  std::uint64_t read_ = 0;
};

}  // namespace drun::worker::shm
