// core. Messages of the tcp transport on their way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "worker_lib/mesh/message.h"

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
