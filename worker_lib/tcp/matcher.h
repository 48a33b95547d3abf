// core. The messages and receives of the tcp transport, and their matcher.
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

using Matcher = worker::Matcher<Receive*, std::shared_ptr<Arrival>>;

}  // namespace drun::worker::tcp
