// core. Splits the stream of a control connection into a preamble and frames.
//
// Format:  each side first sends "drun" and its protocol version (u16). This preamble never
//          changes, so that each version recognizes all others. Frames follow, each a u32 length
//          and that number of bytes.
// Limits:  the size of a frame. Memory is allocated for received bytes only, not for announced
//          ones.
// Errors:  Refused, with the invalid bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace drun::rendezvous {

// Raise it with every change of the control protocol.
constexpr std::uint16_t kControlVersion = 14;
constexpr std::string_view kControlMagic = "drun";
constexpr std::size_t kPreambleBytes = 6;

std::string encode_preamble(std::uint16_t version = kControlVersion);

class FrameReader {
 public:
  explicit FrameReader(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  void push(std::string_view bytes);
  void set_limit(std::size_t limit_bytes) { limit_bytes_ = limit_bytes; }

  // The peer's version once it has arrived. Refused: not drun's preamble; the message contains the
  // first bytes.
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

// "HTTP/1.1 400 Bad\r\n" in quotes, with unprintable bytes as \xNN; at most 32 bytes.
std::string printable(std::string_view bytes);

}  // namespace drun::rendezvous
