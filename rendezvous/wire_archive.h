// core. Two archives with one face, so that a message's layout is written down once and serves both
// directions: `fields(archive, message)` writes with WireWriter and reads with WireReader.
//
// Errors:  the writer cuts texts at their limit (never inside a UTF-8 sequence) and clamps numbers
//          into their range; the reader fails for good at the first value out of range.
// Owner:   used for one message and dropped.   Thread: any, one at a time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/bytes.h"

namespace drun::rendezvous {

struct WireRange {
  std::int64_t low = 0;
  std::int64_t high = 0;
};

// The first `limit_bytes` of `text`, shortened to whole UTF-8 sequences.
inline std::string_view cut_text(std::string_view text, std::size_t limit_bytes) {
  if (text.size() <= limit_bytes) return text;
  std::size_t end = limit_bytes;
  while (end > 0 && limit_bytes - end < 4 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
    --end;
  return text.substr(0, end);
}

class WireWriter {
 public:
  static constexpr bool kIsReader = false;
  explicit WireWriter(std::string& out) : out_(out) {}

  template <typename Integer>
  void integer(Integer& value, WireRange range) {
    out_.i64(std::clamp(static_cast<std::int64_t>(value), range.low, range.high));
  }
  void kind(std::uint8_t& value, std::size_t) { out_.u8(value); }
  void text(std::string& value, std::size_t limit_bytes) {
    out_.text(cut_text(value, limit_bytes));
  }
  void flag(bool& value) { out_.u8(value ? 1 : 0); }
  void bits(std::uint64_t& value) { out_.u64(value); }
  template <typename Duration>
  void duration(Duration& value, std::int64_t most) {
    out_.i64(std::clamp<std::int64_t>(value.count(), 0, most));
  }
  // u32 count, then each element; elements beyond `most` are not written.
  template <typename Element, typename Each>
  void list(std::vector<Element>& elements, std::size_t most, Each each) {
    const std::size_t count = std::min(elements.size(), most);
    out_.u32(static_cast<std::uint32_t>(count));
    for (std::size_t i = 0; i < count; ++i) each(*this, elements[i]);
  }

 private:
  ByteWriter out_;
};

class WireReader {
 public:
  static constexpr bool kIsReader = true;
  explicit WireReader(std::string_view bytes) : in_(bytes) {}

  template <typename Integer>
  void integer(Integer& value, WireRange range) {
    value = static_cast<Integer>(checked(range));
  }
  // Which of `count` alternatives follows.
  void kind(std::uint8_t& value, std::size_t count) {
    value = in_.u8();
    if (value < count) return;
    is_bad_ = true;
    value = 0;
  }
  void text(std::string& value, std::size_t limit_bytes) { value = in_.text(limit_bytes); }
  void flag(bool& value) {
    const std::uint8_t raw = in_.u8();
    is_bad_ = is_bad_ || raw > 1;
    value = raw == 1;
  }
  void bits(std::uint64_t& value) { value = in_.u64(); }
  template <typename Duration>
  void duration(Duration& value, std::int64_t most) {
    value = Duration(checked({0, most}));
  }
  template <typename Element, typename Each>
  void list(std::vector<Element>& elements, std::size_t most, Each each) {
    const std::size_t count = in_.u32();
    if (count > most || count > in_.left_bytes()) is_bad_ = true;  // an element is a byte at least
    for (std::size_t i = 0; i < count && !failed(); ++i) each(*this, elements.emplace_back());
  }

  void fail() { is_bad_ = true; }
  bool failed() const { return is_bad_ || in_.failed(); }
  // Everything was read, nothing was wrong.
  bool is_complete() const { return !failed() && in_.at_end(); }

 private:
  std::int64_t checked(WireRange range) {
    const std::int64_t raw = in_.i64();
    if (raw >= range.low && raw <= range.high) return raw;
    is_bad_ = true;
    return range.low;
  }

  ByteReader in_;
  bool is_bad_ = false;
};

}  // namespace drun::rendezvous
