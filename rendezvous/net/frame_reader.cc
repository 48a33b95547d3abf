#include "rendezvous/net/frame_reader.h"

#include <algorithm>
#include <cstdio>

#include "rendezvous/base/bytes.h"

namespace drun::rendezvous {
namespace {

// An empty buffer of at most this size is kept for the next frame.
constexpr std::size_t kKeptBytes = 4096;

}  // namespace

std::string encode_preamble(std::uint16_t version) {
  std::string bytes(kControlMagic);
  ByteWriter(bytes).u16(version);
  return bytes;
}

void FrameReader::push(std::string_view bytes) {
  buffer_.erase(0, read_bytes_);
  read_bytes_ = 0;
  if (buffer_.empty() && buffer_.capacity() > kKeptBytes) std::string().swap(buffer_);
  buffer_.append(bytes);
}

Result<std::optional<std::uint16_t>> FrameReader::next_preamble() {
  const std::string_view bytes = unread();
  const std::size_t magic_bytes = std::min(bytes.size(), kControlMagic.size());
  if (bytes.substr(0, magic_bytes) != kControlMagic.substr(0, magic_bytes))
    return Error{ErrorCode::Refused, printable(bytes)};
  if (bytes.size() < kPreambleBytes) return std::optional<std::uint16_t>();
  read_bytes_ += kPreambleBytes;
  return std::optional(ByteReader(bytes.substr(kControlMagic.size())).u16());
}

Result<std::optional<std::string_view>> FrameReader::next_frame() {
  constexpr std::size_t kLengthBytes = 4;
  const std::string_view bytes = unread();
  if (bytes.size() < kLengthBytes) return std::optional<std::string_view>();
  const std::size_t size = ByteReader(bytes).u32();
  if (size == 0 || size > limit_bytes_)
    return Error{ErrorCode::Refused, "a frame of " + std::to_string(size) + " bytes; from 1 to " +
                                         std::to_string(limit_bytes_) + " are allowed here"};
  if (bytes.size() - kLengthBytes < size) return std::optional<std::string_view>();
  read_bytes_ += kLengthBytes + size;
  return std::optional(bytes.substr(kLengthBytes, size));
}

void ReadBuffer::adapt(std::size_t read_bytes) {
  const std::size_t size = bytes_.size();
  std::size_t wanted = size;
  if (read_bytes == size) wanted = std::min(2 * size, kLargestBytes);
  if (read_bytes <= size / 4) wanted = std::max(size / 2, kSmallestBytes);
  if (wanted != size) bytes_ = std::vector<char>(wanted);
}

std::string printable(std::string_view bytes) {
  constexpr std::size_t kMostBytes = 32;
  std::string text = "\"";
  for (const char c : bytes.substr(0, kMostBytes)) {
    const bool is_plain = c >= ' ' && c <= '~' && c != '"' && c != '\\';
    if (is_plain) {
      text += c;
      continue;
    }
    char escaped[8];
    std::snprintf(escaped, sizeof(escaped), "\\x%02X", static_cast<unsigned>(c) & 0xFFU);
    text += escaped;
  }
  return text + (bytes.size() > kMostBytes ? "\"..." : "\"");
}

}  // namespace drun::rendezvous
