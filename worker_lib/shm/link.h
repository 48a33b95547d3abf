// core. The messages between this rank and one other: incoming and outgoing frames.
//
//     send:  queued --short--> done                              (as long as there is credit)
//            queued --offer--> offered --taken--> done
//                              offered --grant--> sending --> done
//     recv:  posted --short--> done
//            posted --offer, then read by who asked, taken--> done      (Messages; or else:)
//            posted --offer, grant--> arriving --> done
//
// Credit:  the receiver keeps short messages that have no recv yet, at most kMostKeptBytes of one
//          sender: the sender counts, and only offers the rest. So the rings are always read empty,
//          and a message without a recv never blocks another.
// Owner:   states are shared between a Transfer and the links that still work on them.
// Thread:  one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "drun/backend.h"
#include "worker_lib/shm/ring.h"

namespace drun::worker::shm {

// Done when sent, without the receiver.
constexpr std::size_t kShortBytes = 8 * 1024;
constexpr std::size_t kMostKeptBytes = 256 * 1024;

struct Outgoing {
  std::uint32_t tag = 0;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  Signature signature = {};
  std::size_t sent_bytes = 0;
  bool is_done = false;
  bool is_dropped = false;  // its data may be gone
};

struct Incoming {
  std::optional<int> from;  // absent: any; then the actual sender
  std::uint32_t tag = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  Signature signature = {};
  std::size_t got_bytes = 0;
  bool is_done = false;
  bool is_dropped = false;
  std::string mismatch;  // done, but not as both sides thought
};

class Link {
 public:
  Link(const Segment& segment, int rank, int peer);

  // True: it was short, has gone and is done with. False: not this way.
  bool send_at_once(const Outgoing& message);
  void send(std::shared_ptr<Outgoing> message);
  // The data of this offer of the peer's, please.
  void grant(std::uint64_t number, std::shared_ptr<Incoming> to);
  // It has been read.
  void confirm(std::uint64_t number);
  // A short message has found its receiver.
  void settle(std::size_t bytes);

  // The next frame that the caller must decide about (Short, Offer), after handling those before
  // it. It stays until taken.
  std::optional<Frame> next();
  void take(const Frame& frame, std::byte* to);
  // Writes as much as there is room for.
  void flush();

  // Since the last time: whether the peer has something to look at; whether a frame has moved,
  // either way; whether a message was done.
  bool has_news() { return std::exchange(has_news_, false); }
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
  std::uint64_t short_bytes_ = 0;    // sent, ever; as settled
  std::uint64_t settled_bytes_ = 0;  // when last asked
  bool has_news_ = false;
  bool has_moved_ = false;
  bool has_done_ = false;
};

// The credit that a short message uses.
constexpr std::size_t kept_bytes(std::size_t bytes) { return bytes + kLineBytes; }

}  // namespace drun::worker::shm
