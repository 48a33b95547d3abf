// core. Little-endian integers and counted strings in and out of byte strings: the alphabet of both
// wires.
//
// Owner:   ByteReader looks into bytes that outlive it. ByteWriter appends to a string it is given.
// Errors:  a reader that is asked for more than there is, or for a string over its limit, becomes
//          `failed` for good and gives zeros and empty strings from then on: check at the end.
// Thread:  any, one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace drun {

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

}  // namespace drun
