#include "worker_lib/tcp/outbox.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

namespace drun::worker::tcp {
namespace {

constexpr std::size_t kMostPieces = 32;
// One call writes at most about this much, so that a rank that sends and receives alternates.
constexpr std::size_t kMostPerCall = std::size_t{512} << 10;
// Up to here copying the pieces costs less than the kernel's handling of their list.
constexpr std::size_t kCopiedBytes = 2048;

ssize_t write_pieces(int fd, std::span<iovec> pieces) {
  constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
  std::array<char, kCopiedBytes> copy;
  std::size_t bytes = 0;
  for (const iovec& piece : pieces) {
    if (piece.iov_len > copy.size() - bytes) {
      msghdr message{};
      message.msg_iov = pieces.data();
      message.msg_iovlen = pieces.size();
      return ::sendmsg(fd, &message, kFlags);
    }
    std::memcpy(copy.data() + bytes, piece.iov_base, piece.iov_len);
    bytes += piece.iov_len;
  }
  return ::send(fd, copy.data(), bytes, kFlags);
}

}  // namespace

Outbox::Outgoing Outbox::with_head(const Frame& frame) {
  Outgoing outgoing;
  const Head head = encode(frame);
  std::copy(head.begin(), head.end(), outgoing.head.begin());
  return outgoing;
}

void Outbox::open(UniqueFd fd, const HelloBytes& hello, bool is_held) {
  fd_ = std::move(fd);
  state_ = State::Dialing;
  is_held_ = is_held;
  push_opening({hello.data(), hello.size()});
}

void Outbox::release(const Proof& proof) {
  is_held_ = false;
  push_opening({proof.data(), proof.size()});
}

void Outbox::push_opening(std::string_view bytes) {
  Outgoing first;
  std::copy(bytes.begin(), bytes.end(), first.head.begin());
  first.head_bytes = bytes.size();
  first.is_frame = false;
  queue_.push_front(first);
}

void Outbox::close() {
  state_ = State::Gone;
  is_held_ = false;
  queue_.clear();
}

// Not by closing the descriptor, which others may be watching.
void Outbox::hang_up() { ::shutdown(fd_.get(), SHUT_WR); }

void Outbox::hand_over(Outbox& other) {
  for (const Outgoing& frame : queue_)
    if (frame.is_frame) other.queue_.push_back(frame);
  queue_.clear();
}

void Outbox::push_eager(Send& send) {
  Outgoing frame =
      with_head({.kind = Frame::Kind::Eager, .slot = send.slot, .size_bytes = send.size_bytes});
  frame.data = send.data;
  frame.size_bytes = send.size_bytes;
  frame.send = &send;
  send.queued_bytes = send.size_bytes;
  queue_.push_back(frame);
}

void Outbox::push_ask(Send& send) {
  send.is_asked = true;
  queue_.push_back(with_head({.kind = Frame::Kind::Ask,
                              .slot = send.slot,
                              .number = send.number,
                              .size_bytes = send.size_bytes}));
}

// The next one follows when this one has left, behind what was pushed meanwhile.
void Outbox::push_part(Send& send) {
  const std::size_t size_bytes = std::min(kPartBytes, send.size_bytes - send.queued_bytes);
  Outgoing part = with_head({.kind = Frame::Kind::Data,
                             .slot = send.queued_bytes,
                             .number = send.number,
                             .size_bytes = size_bytes});
  part.data = send.data + send.queued_bytes;
  part.size_bytes = size_bytes;
  part.send = &send;
  send.queued_bytes += size_bytes;
  queue_.push_back(part);
}

void Outbox::push_first(const Frame& frame) {
  auto at = queue_.begin();
  if (at != queue_.end() && (at->done_bytes > 0 || !at->is_frame)) ++at;
  queue_.insert(at, with_head(frame));
}

int Outbox::flush() {
  while ((state_ == State::Dialing || state_ == State::Open) && has_more()) {
    std::array<iovec, kMostPieces> pieces{};
    std::size_t count = 0;
    std::size_t total = 0;
    for (Outgoing& frame : queue_) {
      if (count + 2 > pieces.size() || (is_held_ && frame.is_frame)) break;
      const std::size_t of_head = std::min(frame.done_bytes, frame.head_bytes);
      const std::size_t of_data = frame.done_bytes - of_head;
      if (of_head < frame.head_bytes)
        pieces[count++] = {frame.head.data() + of_head, frame.head_bytes - of_head};
      if (of_data < frame.size_bytes) {
        const std::size_t bytes = std::min(frame.size_bytes - of_data, kMostPerCall - total);
        pieces[count++] = {const_cast<char*>(frame.data) + of_data, bytes};
        total += bytes;
      }
      if (total == kMostPerCall) break;
    }
    const ssize_t written = write_pieces(fd_.get(), {pieces.data(), count});
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return errno;
    if (written >= 0) state_ = State::Open;
    if (written < 0 || !take_written(static_cast<std::size_t>(written))) break;
  }
  return 0;
}

// False: the system has not taken all that it was given.
bool Outbox::take_written(std::size_t bytes) {
  while (bytes > 0) {
    Outgoing& frame = queue_.front();
    const std::size_t taken = std::min(bytes, frame.total_bytes() - frame.done_bytes);
    frame.done_bytes += taken;
    bytes -= taken;
    has_sent_frames_ = has_sent_frames_ || frame.is_frame;
    if (frame.done_bytes < frame.total_bytes()) return false;
    Send* const send = frame.send;
    if (send != nullptr) send->sent_bytes += frame.size_bytes;
    queue_.pop_front();
    if (send == nullptr) continue;
    send->is_done = send->sent_bytes == send->size_bytes;
    if (send->queued_bytes < send->size_bytes) push_part(*send);
  }
  return true;
}

bool Outbox::take_back(const Send& send) {
  const bool is_cut = std::any_of(queue_.begin(), queue_.end(), [&send](const Outgoing& frame) {
    return frame.send == &send && frame.done_bytes > 0;
  });
  // Of a granted one the receiver expects the rest.
  if (is_cut || (send.is_asked && send.queued_bytes > 0)) return false;
  std::erase_if(queue_, [&send](const Outgoing& frame) { return frame.send == &send; });
  return true;
}

}  // namespace drun::worker::tcp
