// core. Receives, messages that have arrived, and their matcher.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker_lib/mesh/matcher.h"

namespace drun::worker::tcp {

// A started receive.
struct Receive {
  std::optional<int> from{};  // absent: from any
  std::uint64_t slot = 0;
  char* data = nullptr;
  std::size_t room_bytes = 0;
  ClaimSide claim{};

  std::uint64_t order = 0;  // increases with each receive and message
  // Set once it is matched with a message:
  std::optional<int> sender{};
  std::size_t size_bytes = 0;
  std::size_t got_bytes = 0;
  bool is_done = false;
  std::string misfit{};  // why the message does not fit; empty: it fits

  std::optional<int> peer() const { return sender ? sender : from; }
};

// A message that arrived before its receive.
struct Arrival {
  int from = 0;
  std::uint64_t slot = 0;
  std::size_t size_bytes = 0;
  std::optional<std::uint64_t>
      number{};  // set: only announced, and its data must be requested (Ask)
  std::vector<char> data{};
  std::size_t got_bytes = 0;
  std::uint64_t order = 0;
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

using Matcher = worker::Matcher<Receive*, std::shared_ptr<Arrival>>;

}  // namespace drun::worker::tcp
