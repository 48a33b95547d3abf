// core. The messages between this rank and one other, as frames in two rings, one for each
// direction.
//
//     send:  queued --short--> done                              (while there is credit)
//            queued --offer--> offered --taken--> done
//                              offered --grant--> sending --> done
//     recv:  posted --short--> done
//            posted --offer, read from the sender's memory, taken--> done  (Messages; or else:)
//            posted --offer, grant--> arriving --> done
//
// Short:   a message of at most short_bytes() is done when sent, without the receiver.
// Credit:  the receiver keeps short messages that have no recv yet, at most kMostKeptBytes per
//          sender. The sender counts these bytes and offers further messages instead. The rings can
//          therefore always be emptied, and a message without a recv never blocks another one.
// Owner:   messages are shared between a Transfer and the links that still use them.
// Thread:  one at a time at each end.
// Errors:  next throws BackendFailure (System) if the ring is invalid. Its lengths are written by
//          another process and are always checked.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "drun/backend.h"
#include "worker_lib/mesh/matcher.h"
#include "worker_lib/shm/segment.h"

namespace drun::worker::shm {

// --- Rings: buffers in the segment. A writer without room sets a flag; the reader then wakes it
// when there is room.

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

// --- The link

constexpr std::size_t kMostKeptBytes = 256 * 1024;

struct Outgoing {
  std::optional<int> to;  // always set
  std::uint32_t tag = 0;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  Signature signature = {};
  std::size_t sent_bytes = 0;
  bool is_done = false;
  bool is_dropped = false;  // its data may no longer be valid
};

struct Incoming {
  std::optional<int> from;  // absent: any; set to the sender on a match
  std::uint64_t slot = 0;   // the tag
  ClaimSide claim{};
  std::uint64_t order = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  Signature signature = {};
  std::size_t got_bytes = 0;
  bool is_done = false;
  bool is_dropped = false;
  std::optional<Signature> mismatch;  // done, but the sender has another type or count
};

class Link {
 public:
  Link(const Segment& segment, int rank, int peer);

  // Sends a short message at once. False if that is not possible.
  bool send_at_once(const Outgoing& message);
  void send(std::shared_ptr<Outgoing> message);
  // Requests the data of an offer of the peer.
  void grant(std::uint64_t number, std::shared_ptr<Incoming> to);
  // Tells the peer that the data of its offer has been read.
  void confirm(std::uint64_t number);
  // A short message was matched with a recv.
  void settle(std::size_t bytes);

  // Handles frames up to the next one that the caller must handle (Short, Offer), and returns that
  // one. It stays in the ring until take().
  std::optional<Frame> next();
  // The next frame, if it is a Short one.
  std::optional<Frame> next_short() const;
  void take(const Frame& frame, std::byte* to);
  // Writes pending frames as far as there is room.
  void flush();

  // Whether there are frames to read. Thread: any.
  bool has_frames() const { return in_.has_frames(); }
  // Since the previous call: whether a frame was sent; whether the peer waited for room, which it
  // now has; whether a frame was sent or received; whether a message was completed.
  bool has_written() { return std::exchange(has_written_, false); }
  bool has_made_room() { return std::exchange(has_made_room_, false); }
  bool has_moved() { return std::exchange(has_moved_, false); }
  bool has_done() { return std::exchange(has_done_, false); }

 private:
  bool start(const std::shared_ptr<Outgoing>& message);
  bool may_be_short(std::size_t bytes);
  bool push_short(const Outgoing& message);
  bool stream(Outgoing& message, std::uint64_t number);
  void arrive(const Frame& frame);
  void granted(std::uint64_t number);
  void taken(std::uint64_t number);
  bool push(const Frame& frame, const std::byte* payload);

  RingWriter out_;
  RingReader in_;
  std::deque<Frame> answers_;
  std::deque<std::shared_ptr<Outgoing>> queue_;
  std::map<std::uint64_t, std::shared_ptr<Outgoing>> offered_;
  std::map<std::uint64_t, std::shared_ptr<Outgoing>> sending_;
  std::map<std::uint64_t, std::shared_ptr<Incoming>> arriving_;
  std::uint64_t next_number_ = 0;
  std::uint64_t short_bytes_ = 0;    // sent so far, in the unit of kept_bytes()
  std::uint64_t settled_bytes_ = 0;  // as of the last check
  bool has_written_ = false;
  bool has_made_room_ = false;
  bool has_moved_ = false;
  bool has_done_ = false;
};

// The credit that a short message uses.
constexpr std::size_t kept_bytes(std::size_t bytes) { return bytes + kLineBytes; }

}  // namespace drun::worker::shm
