// core. Messages of the tcp transport on their way.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "worker_lib/mesh/message.h"
#include "worker_lib/tcp/frames.h"

namespace drun::worker::tcp {

struct Send : PendingSend {
  std::uint64_t number = 0;  // of an announced message
  bool is_asked = false;
  std::size_t queued_bytes = 0;  // of a granted message, in all lanes
  std::size_t sent_bytes = 0;    // the kernel has them; all: it is done
};

struct Receive : PendingReceive {
  std::size_t got_bytes = 0;
};

struct Arrival : EarlyMessage {
  std::optional<std::uint64_t> number{};  // set: its data must be requested (Ask)
  std::size_t got_bytes = 0;
  Receive* receive = nullptr;  // matched since then; gets the message when all of it has arrived
};

// Buffers of early messages for further ones, as many as the window of one sender needs. The heap
// gives large ones back to the system, and getting them again costs more than copying the message.
class SpareBuffers {
 public:
  std::unique_ptr<char[]> take(std::size_t size_bytes) {
    const std::size_t capacity = capacity_of(size_bytes);
    const auto found = std::find_if(spares_.begin(), spares_.end(), [capacity](const Spare& spare) {
      return spare.capacity == capacity;
    });
    if (found == spares_.end()) return std::make_unique_for_overwrite<char[]>(capacity);
    std::unique_ptr<char[]> bytes = std::move(found->bytes);
    spares_.erase(found);
    spare_bytes_ -= capacity;
    return bytes;
  }
  // `size_bytes`: as in take().
  void give_back(std::unique_ptr<char[]> bytes, std::size_t size_bytes) {
    if (size_bytes < kLeastBytes) return;
    spares_.push_back({capacity_of(size_bytes), std::move(bytes)});
    spare_bytes_ += spares_.back().capacity;
    for (; spare_bytes_ > kWindowBytes; spares_.pop_front())
      spare_bytes_ -= spares_.front().capacity;
  }

 private:
  static constexpr std::size_t kLeastBytes = std::size_t{16} << 10;
  struct Spare {
    std::size_t capacity = 0;
    std::unique_ptr<char[]> bytes{};
  };
  // Few different ones, so that most fit.
  static std::size_t capacity_of(std::size_t size_bytes) {
    return size_bytes < kLeastBytes ? size_bytes : std::bit_ceil(size_bytes);
  }
  std::deque<Spare> spares_{};  // the oldest first
  std::size_t spare_bytes_ = 0;
};

// The payload of the last frame of a connection. If it belongs to neither, it is dropped.
struct Payload {
  Receive* receive = nullptr;
  std::shared_ptr<Arrival> arrival{};
  char* to = nullptr;  // where the rest goes
  std::size_t left_bytes = 0;

  void advance(std::size_t bytes) {
    if (to != nullptr) to += bytes;
    if (receive != nullptr) receive->got_bytes += bytes;
    if (arrival) arrival->got_bytes += bytes;
    left_bytes -= bytes;
  }
};

}  // namespace drun::worker::tcp
