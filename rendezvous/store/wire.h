// core. Decodes and encodes TCPStore's protocol in both dialects (docs/internals/wire.md).
//
// Format:  integers are little-endian; a text is a u64 length and the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rendezvous/store/message.h"

namespace drun {

// The current dialect's numbers. The legacy dialect's are one less, up to WatchKey, which only it
// has.
enum class Opcode : std::uint8_t {
  Validate = 0,
  Set = 1,
  CompareSet = 2,
  Get = 3,
  Add = 4,
  Check = 5,
  Wait = 6,
  NumKeys = 7,
  DeleteKey = 8,
  Append = 9,
  MultiGet = 10,
  MultiSet = 11,
  CancelWait = 12,
  Ping = 13,
  QueuePush = 14,
  QueuePop = 15,
  QueueLen = 16,
  ListKeys = 17,
  Barrier = 18,
  WatchKey = 255,  // legacy 7
};

std::string_view to_string(Opcode opcode);

// The operation's byte; absent: the dialect has no such operation.
std::optional<std::uint8_t> to_byte(Opcode opcode, Dialect dialect);
std::optional<Opcode> to_opcode(std::uint8_t byte, Dialect dialect);

// The first bytes of a connection in the current dialect.
inline constexpr std::string_view kValidate{"\x00\xCE\xF7\x85\x3C", 5};

struct NeedMore {};
struct Malformed {
  std::string reason;  // "key of 9000 bytes in SET, more than 8192"
};
using Decoded = std::variant<NeedMore, store::Request, Malformed>;

// --- Decoding

// Decodes requests from pieces of any size, and looks at each byte once. Memory grows with the
// received bytes, not with the announced lengths. After Malformed, the connection can only be
// closed.
class RequestDecoder {
 public:
  explicit RequestDecoder(const StoreLimits& limits) : limits_(limits) {}

  // Takes bytes from the front of `input` until a request is complete (the rest stays for the next
  // call), or all are taken.
  Decoded next(std::string_view& input);

  // Known after the first bytes.
  std::optional<Dialect> dialect() const { return dialect_; }

  // The received bytes of an incomplete request.
  std::size_t held_bytes() const { return held_bytes_; }

 private:
  // The field of the next byte.
  enum class Step : std::uint8_t { Opcode, Number, Count, Length, Text };

  bool take_hello(std::string_view& input);
  std::optional<store::Request> run(std::string_view& input);
  void take_opcode(std::string_view& input);
  bool take_integer(std::string_view& input, std::size_t size_bytes, std::uint64_t limit);
  void take_count(std::string_view& input);
  void take_length(std::string_view& input);
  void take_text(std::string_view& input);
  void start_field();
  void end_text();
  bool is_value() const;
  void break_off(std::string_view what);
  store::Request request();

  const StoreLimits limits_;
  std::optional<Dialect> dialect_;
  std::size_t hello_bytes_ = 0;  // of kValidate, seen so far
  std::string broken_;           // the reason; empty: not broken

  Step step_ = Step::Opcode;
  Opcode opcode_ = Opcode::Validate;
  std::string_view fields_;    // the fields not begun yet, one letter each
  char field_ = 0;             // the field being read
  std::uint64_t integer_ = 0;  // being read: the bytes so far
  std::size_t integer_bytes_ = 0;
  std::uint64_t texts_left_ = 0;  // of this field, the one being read included
  std::size_t text_left_bytes_ = 0;
  std::size_t request_bytes_ = 0;
  std::size_t held_bytes_ = 0;
  std::vector<std::string> texts_;
  std::uint64_t number_ = 0;
};

// --- Encoding

void put_u32(std::string& out, std::uint32_t value);
void put_u64(std::string& out, std::uint64_t value);
void put_text(std::string& out, std::string_view text);

// The unsent answers of one connection, as pieces for writev. Shares large values instead of
// copying them. Answers are the same in both dialects.
class OutQueue {
 public:
  void append(std::string_view bytes);
  void append(const Blob& value);

  bool empty() const { return size_bytes_ == 0; }
  std::size_t size_bytes() const { return size_bytes_; }
  // The size without shared values.
  std::size_t own_bytes() const { return own_bytes_; }
  // The number of bytes that a value of this size adds to own_bytes().
  static std::size_t own_cost(std::size_t value_bytes);

  // The first pieces, at most `most`; valid until the queue changes.
  void front(std::size_t most, std::vector<std::string_view>& pieces) const;
  // Removes `count` bytes from the front. Requires count <= size_bytes().
  void consume(std::size_t count);

 private:
  struct Piece {
    std::string bytes;  // if `value` is null
    Blob value;
    std::string_view view() const { return value ? std::string_view(*value) : bytes; }
  };

  std::vector<Piece> pieces_;
  std::size_t first_ = 0;        // pieces before it are fully written
  std::size_t taken_bytes_ = 0;  // of the first piece
  std::size_t size_bytes_ = 0;
  std::size_t own_bytes_ = 0;  // partially written pieces count in full
};

void encode(const store::Answer& answer, OutQueue& out);

}  // namespace drun
