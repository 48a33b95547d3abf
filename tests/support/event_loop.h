// Runs an io_context until a condition is true or a deadline has passed.
#pragma once

#include <chrono>
#include <functional>

#include "rendezvous/net/asio.h"
#include "tests/support/machine.h"

namespace drun::test {

// Returns false if the deadline passed first. Checks the condition after every handler, and also
// periodically, because it can depend on a process or a file.
inline bool run_until(asio::io_context& io, const std::function<bool()>& condition,
                      std::chrono::steady_clock::duration limit = std::chrono::seconds(30)) {
  const auto end = std::chrono::steady_clock::now() + scaled(limit);
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    if (io.stopped()) io.restart();
    io.run_one_for(std::chrono::milliseconds(10));
  }
  return true;
}

}  // namespace drun::test
