// core. The control stream, cut into what it is made of: a preamble, then frames.
//
// Shape:   each side first sends "drun" and its protocol version (u16), which never changes, so
//          that two versions can tell each other apart; then frames, each a u32 length and as many
//          bytes.
// Limits:  a frame's; what it claims is not allocated, only what has arrived is kept.
// Errors:  Refused, with the bytes that are wrong. Never throws.
// Owner:   a connection.   Thread: any, one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace drun::rendezvous {

constexpr std::uint16_t kControlVersion = 11;
constexpr std::string_view kControlMagic = "drun";
constexpr std::size_t kPreambleBytes = 6;

std::string encode_preamble(std::uint16_t version = kControlVersion);

// Bytes as they come in, preamble and frames as they come out.
class FrameReader {
 public:
  explicit FrameReader(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  void push(std::string_view bytes);
  void set_limit(std::size_t limit_bytes) { limit_bytes_ = limit_bytes; }

  // The other side's version, once it has arrived. Refused: not drun's preamble; the message shows
  // the first bytes.
  Result<std::optional<std::uint16_t>> next_preamble();
  // The next whole frame; valid until the next call of any member. Refused: longer than the limit,
  // or empty.
  Result<std::optional<std::string_view>> next_frame();

  bool is_empty() const { return read_bytes_ == buffer_.size(); }
  // The allocated bytes. Freed with the first push after a large frame has been read.
  std::size_t capacity_bytes() const { return buffer_.capacity(); }

 private:
  std::string_view unread() const { return std::string_view(buffer_).substr(read_bytes_); }

  std::size_t limit_bytes_;
  std::string buffer_;
  std::size_t read_bytes_ = 0;
};

// The read buffer of a connection. Its size follows the traffic: it doubles after a read that fills
// the buffer, up to the limit, and halves after one that fills a quarter or less, so that an idle
// connection keeps the smallest buffer only.
class ReadBuffer {
 public:
  static constexpr std::size_t kSmallestBytes = 4096;
  static constexpr std::size_t kLargestBytes = std::size_t{128} << 10;

  char* data() { return bytes_.data(); }
  std::size_t size() const { return bytes_.size(); }
  // After each read, with the number of bytes it returned. Invalidates the data.
  void adapt(std::size_t read_bytes);

 private:
  std::vector<char> bytes_ = std::vector<char>(kSmallestBytes);
};

// "HTTP/1.1 400 Bad\r\n" in quotes, what is not printable as \xNN; at most 32 bytes of it.
std::string printable(std::string_view bytes);

}  // namespace drun::rendezvous
