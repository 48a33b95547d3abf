#include "worker_lib/shm/ring.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>

#include "drun/backend.h"
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

}  // namespace drun::worker::shm
