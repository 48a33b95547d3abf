// core. What a member knows of the rounds it has been in: how a coordinator that takes over hears
// of them. Units:   ages are before the message, by the sender's steady clock. Owner:   a value;
// copy freely.   Thread: any.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace drun::rendezvous {

// A Hello has a limit: older restarts than these count as old as the oldest told.
constexpr std::size_t kMostRestartsTold = 256;

struct Past {
  int rounds = 0;                    // begun
  int node_count = 0;                // of the last world
  std::chrono::milliseconds age{0};  // of its first world
  std::string coordinator;           // of the last world: its host
  int restarts = 0;
  std::vector<std::chrono::milliseconds> restart_ages{};  // of the last ones, oldest first
  bool operator==(const Past&) const = default;
};

}  // namespace drun::rendezvous
