// core. TCPStore's bytes the other way: requests for clients and tests, answers for the server.
//
// Answers are the same in both dialects. Large values are not copied: an OutQueue holds pieces of
// its own bytes and of shared values, and shows them to writev.
//
// Owner:   an OutQueue belongs to one connection.   Thread: any, one at a time.
// Errors:  encode(request): false, and nothing is appended, if the dialect has no such operation.
// Source:  rendezvous/WIRE.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/store/dialect.h"
#include "rendezvous/store/message.h"

namespace drun {

void put_u32(std::string& out, std::uint32_t value);
void put_u64(std::string& out, std::uint64_t value);
void put_text(std::string& out, std::string_view text);

[[nodiscard]] bool encode(const store::Request& request, Dialect dialect, std::string& out);

class OutQueue {
 public:
  void append(std::string_view bytes);
  void append(const Blob& value);

  bool empty() const { return size_bytes_ == 0; }
  std::size_t size_bytes() const { return size_bytes_; }
  // Without values that it shares.
  std::size_t own_bytes() const { return own_bytes_; }
  // What a value of that size adds to that.
  static std::size_t own_cost(std::size_t value_bytes);

  // The first pieces, at most `most` of them; good until the queue is changed.
  void front(std::size_t most, std::vector<std::string_view>& pieces) const;
  // Takes `count` bytes off the front. Requires count <= size_bytes().
  void consume(std::size_t count);

 private:
  struct Piece {
    std::string bytes;  // if `value` is null
    Blob value;
    std::string_view view() const { return value ? std::string_view(*value) : bytes; }
  };

  std::vector<Piece> pieces_;
  std::size_t first_ = 0;        // pieces before it are done with
  std::size_t taken_bytes_ = 0;  // of the first piece
  std::size_t size_bytes_ = 0;
  std::size_t own_bytes_ = 0;  // pieces that are done with in part count whole
};

void encode(const store::Answer& answer, OutQueue& out);

}  // namespace drun
