// core. Integers and strings in wire messages. ByteReader and ByteWriter handle little-endian
// integers and counted strings, for the control protocol and the store. WireReader and WireWriter
// have the same interface, so that a message's layout is written once: `fields(archive, message)`
// reads or writes.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace drun {

// Reads from bytes that must outlive it. A read beyond the end, or of a string over its limit,
// makes it `failed` for good; it then returns zeros and empty strings. Check `failed` at the end.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  std::uint8_t u8() { return static_cast<std::uint8_t>(integer(1)); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(integer(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(integer(4)); }
  std::uint64_t u64() { return integer(8); }
  std::int64_t i64() { return static_cast<std::int64_t>(integer(8)); }
  // u32 length, then the bytes.
  std::string_view text(std::size_t limit_bytes) {
    const std::size_t size = u32();
    if (size > limit_bytes || size > bytes_.size()) return fail();
    return take(size);
  }

  bool failed() const { return failed_; }
  bool at_end() const { return bytes_.empty(); }
  std::size_t left_bytes() const { return bytes_.size(); }

 private:
  std::uint64_t integer(std::size_t size) {
    if (failed_ || bytes_.size() < size) return fail(), 0;
    const std::string_view raw = take(size);
    std::uint64_t value = 0;
    for (std::size_t i = size; i-- > 0;) value = value << 8 | static_cast<std::uint8_t>(raw[i]);
    return value;
  }
  std::string_view take(std::size_t size) {
    const std::string_view head = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return head;
  }
  std::string_view fail() {
    failed_ = true;
    bytes_ = {};
    return {};
  }

  std::string_view bytes_;
  bool failed_ = false;
};

// Appends to a string of the caller.
class ByteWriter {
 public:
  explicit ByteWriter(std::string& out) : out_(out) {}

  void u8(std::uint8_t value) { integer(value, 1); }
  void u16(std::uint16_t value) { integer(value, 2); }
  void u32(std::uint32_t value) { integer(value, 4); }
  void u64(std::uint64_t value) { integer(value, 8); }
  void i64(std::int64_t value) { integer(static_cast<std::uint64_t>(value), 8); }
  void raw(std::string_view bytes) { out_.append(bytes); }
  // u32 length, then the bytes.
  void text(std::string_view bytes) {
    u32(static_cast<std::uint32_t>(bytes.size()));
    raw(bytes);
  }

 private:
  void integer(std::uint64_t value, std::size_t size) {
    char raw[8];
    for (std::size_t i = 0; i < size; ++i) raw[i] = static_cast<char>(value >> (8 * i));
    out_.append(raw, size);
  }

  std::string& out_;
};

// Whether a TCPStore client may begin with this byte.
constexpr bool may_be_store(std::uint8_t first_byte) { return first_byte <= 12; }

}  // namespace drun

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

// Cuts texts at their limit (never inside a UTF-8 sequence) and clamps numbers into their range.
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

// Fails for good at the first value out of range.
class WireReader {
 public:
  static constexpr bool kIsReader = true;
  explicit WireReader(std::string_view bytes) : in_(bytes) {}

  template <typename Integer>
  void integer(Integer& value, WireRange range) {
    value = static_cast<Integer>(checked(range));
  }
  // The index of the alternative that follows, out of `count`.
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
  // All bytes were read, and all values were valid.
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
