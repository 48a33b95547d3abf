#include "worker_lib/shm/link.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>
#include <utility>

#include "worker_lib/shm/wait.h"

namespace drun::worker::shm {
namespace {

// Frames begin at multiples of this.
constexpr std::size_t kAlign = 16;

std::size_t whole_bytes(const Frame& frame) {
  return (sizeof(Frame) + frame.bytes + kAlign - 1) / kAlign * kAlign;
}

}  // namespace

bool RingWriter::push(const Frame& frame, const std::byte* payload) {
  assert(frame.bytes <= kMostFrameBytes);
  const std::size_t bytes = whole_bytes(frame);
  if (!has_room(bytes)) {
    ends_->wants_room.store(1);
    if (!has_room(bytes)) return false;
  }
  copy_in(written_, &frame, sizeof frame);
  copy_in(written_ + sizeof frame, payload, frame.bytes);
  written_ += bytes;
  ends_->written.store(written_);  // before sleepers are looked for
  detail::claim_line(bytes_ + (written_ & (size_bytes_ - 1)));
  return true;
}

bool RingWriter::has_room(std::size_t bytes) {
  const auto fits = [&] {
    const std::uint64_t unread = written_ - seen_read_;
    return unread <= size_bytes_ && size_bytes_ - unread >= bytes;
  };
  if (fits()) return true;
  seen_read_ = ends_->read.load();
  return fits();
}

void RingWriter::copy_in(std::uint64_t at, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  const std::size_t begin = at & (size_bytes_ - 1);
  const std::size_t first = std::min(bytes, size_bytes_ - begin);
  std::memcpy(bytes_ + begin, from, first);
  std::memcpy(bytes_, static_cast<const std::byte*>(from) + first, bytes - first);
}

std::optional<Frame> RingReader::next() const {
  const std::uint64_t unread = ends_->written.load() - read_;
  if (unread == 0) return std::nullopt;
  Frame frame;
  if (unread >= sizeof frame && unread <= size_bytes_) {
    copy_out(read_, &frame, sizeof frame);
    if (frame.kind <= FrameKind::Taken && frame.bytes <= kMostFrameBytes &&
        whole_bytes(frame) <= unread) {
      return frame;
    }
  }
  throw BackendFailure(
      WorkerError::Kind::System, from_,
      "the shared memory of messages from rank " + std::to_string(from_) + " has been overwritten");
}

bool RingReader::take(const Frame& frame, std::byte* to) {
  if (to != nullptr) copy_out(read_ + sizeof frame, to, frame.bytes);
  read_ += whole_bytes(frame);
  ends_->read.store(read_);
  return ends_->wants_room.load() != 0 && ends_->wants_room.exchange(0) != 0;
}

void RingReader::copy_out(std::uint64_t at, void* to, std::size_t bytes) const {
  if (bytes == 0) return;
  const std::size_t begin = at & (size_bytes_ - 1);
  const std::size_t first = std::min(bytes, size_bytes_ - begin);
  std::memcpy(to, bytes_ + begin, first);
  std::memcpy(static_cast<std::byte*>(to) + first, bytes_, bytes - first);
}

// --- The link

Link::Link(const Segment& segment, int rank, int peer)
    : out_(segment, rank, peer), in_(segment, peer, rank) {}

bool Link::send_at_once(const Outgoing& message) {
  return queue_.empty() && may_be_short(message.bytes) && push_short(message);
}

void Link::send(std::shared_ptr<Outgoing> message) { queue_.push_back(std::move(message)); }

void Link::grant(std::uint64_t number, std::shared_ptr<Incoming> to) {
  answers_.push_back({.kind = FrameKind::Grant, .number = number});
  arriving_[number] = std::move(to);
}

void Link::confirm(std::uint64_t number) {
  answers_.push_back({.kind = FrameKind::Taken, .number = number});
}

void Link::settle(std::size_t bytes) { in_.settle(kept_bytes(bytes)); }

std::optional<Frame> Link::next() {
  while (true) {
    const std::optional<Frame> frame = in_.next();
    if (!frame || frame->kind == FrameKind::Short || frame->kind == FrameKind::Offer) return frame;
    if (frame->kind == FrameKind::Data) {
      arrive(*frame);
      continue;
    }
    if (frame->kind == FrameKind::Grant) granted(frame->number);
    if (frame->kind == FrameKind::Taken) taken(frame->number);
    take(*frame, nullptr);
  }
}

std::optional<Frame> Link::next_short() const {
  const std::optional<Frame> frame = in_.next();
  return frame && frame->kind == FrameKind::Short ? frame : std::nullopt;
}

void Link::take(const Frame& frame, std::byte* to) {
  has_moved_ = true;
  has_made_room_ |= in_.take(frame, to);
}

void Link::arrive(const Frame& frame) {
  const auto found = arriving_.find(frame.number);
  if (found == arriving_.end()) return take(frame, nullptr);
  Incoming& message = *found->second;
  const bool fits = frame.bytes <= message.bytes - message.got_bytes;
  take(frame, message.is_dropped || !fits ? nullptr : message.data + message.got_bytes);
  message.got_bytes += std::min(frame.bytes, message.bytes - message.got_bytes);
  if (message.got_bytes < message.bytes) return;
  message.is_done = has_done_ = true;
  arriving_.erase(found);
}

void Link::granted(std::uint64_t number) {
  if (auto node = offered_.extract(number)) sending_.insert(std::move(node));
}

void Link::taken(std::uint64_t number) {
  if (const auto node = offered_.extract(number)) node.mapped()->is_done = has_done_ = true;
}

void Link::flush() {
  while (!answers_.empty()) {
    if (!push(answers_.front(), nullptr)) return;
    answers_.pop_front();
  }
  while (!queue_.empty()) {
    if (!queue_.front()->is_dropped && !start(queue_.front())) return;
    queue_.pop_front();
  }
  while (!sending_.empty()) {
    const auto first = sending_.begin();
    if (!stream(*first->second, first->first)) return;
    sending_.erase(first);
  }
}

bool Link::start(const std::shared_ptr<Outgoing>& message) {
  if (may_be_short(message->bytes)) {
    if (!push_short(*message)) return false;
    message->is_done = has_done_ = true;
    return true;
  }
  const Frame frame{.kind = FrameKind::Offer,
                    .tag = message->tag,
                    .number = next_number_,
                    .address = reinterpret_cast<std::uintptr_t>(message->data),
                    .signature = message->signature};
  if (!push(frame, nullptr)) return false;
  offered_[next_number_++] = message;
  return true;
}

bool Link::may_be_short(std::size_t bytes) {
  if (bytes > out_.most_short_bytes()) return false;
  const auto has_credit = [&] {
    return short_bytes_ - settled_bytes_ + kept_bytes(bytes) <= kMostKeptBytes;
  };
  if (has_credit()) return true;
  settled_bytes_ = out_.settled_bytes();
  return has_credit();
}

bool Link::push_short(const Outgoing& message) {
  const Frame frame{.kind = FrameKind::Short,
                    .tag = message.tag,
                    .bytes = message.bytes,
                    .signature = message.signature};
  if (!push(frame, message.data)) return false;
  short_bytes_ += kept_bytes(message.bytes);
  return true;
}

// True if the whole message has been sent.
bool Link::stream(Outgoing& message, std::uint64_t number) {
  do {
    if (message.is_dropped) return true;
    const std::size_t bytes = std::min(out_.most_frame_bytes(), message.bytes - message.sent_bytes);
    const Frame frame{.kind = FrameKind::Data, .number = number, .bytes = bytes};
    if (!push(frame, message.data + message.sent_bytes)) return false;
    message.sent_bytes += bytes;
  } while (message.sent_bytes < message.bytes);
  message.is_done = has_done_ = true;
  return true;
}

bool Link::push(const Frame& frame, const std::byte* payload) {
  if (!out_.push(frame, payload)) return false;
  has_written_ = has_moved_ = true;
  return true;
}

}  // namespace drun::worker::shm
