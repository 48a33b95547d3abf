// core. Messages on their way over a mesh, and the failures that all transports report in the same
// words.
//
// Owner:   a PendingSend or PendingReceive stays at its place from its start until it is done or
//          given up.
// Thread:  one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "drun/backend.h"
#include "worker_lib/mesh/matcher.h"

namespace drun::worker {

struct PendingSend {
  int to = 0;
  std::uint64_t slot = 0;
  const char* data = nullptr;
  std::size_t size_bytes = 0;
  bool is_done = false;  // the data may change

  std::optional<int> peer() const { return to; }
};

struct PendingReceive {
  std::optional<int> from{};  // absent: from any
  std::uint64_t slot = 0;
  char* data = nullptr;
  std::size_t room_bytes = 0;
  ClaimSide claim{};
  std::uint64_t order = 0;  // increases with each receive and message
  // Set once it is matched with a message:
  std::optional<int> sender{};
  std::size_t size_bytes = 0;
  std::string misfit{};  // why the message does not fit; empty: it fits
  bool is_done = false;

  std::optional<int> peer() const { return sender ? sender : from; }
  // Matches it with a message of that size. False if the message does not fit, and must be dropped.
  bool accept(int from_rank, std::size_t message_bytes) {
    sender = from_rank;
    size_bytes = message_bytes;
    if (message_bytes <= room_bytes) return true;
    misfit = "rank " + std::to_string(from_rank) + " sends " + std::to_string(message_bytes) +
             " bytes, this rank has room for " + std::to_string(room_bytes);
    return false;
  }
  // Throws Mismatch if the message does not fit.
  void check_fit() const {
    if (!misfit.empty()) throw BackendFailure(WorkerError::Kind::Mismatch, sender, misfit);
  }
};

// A message that has arrived before its receive.
struct EarlyMessage {
  int from = 0;
  std::uint64_t slot = 0;
  std::size_t size_bytes = 0;
  std::uint64_t order = 0;         // as of a PendingReceive
  std::unique_ptr<char[]> data{};  // null if the message is only announced, or empty
};

// --- Failures

// A rank's knowledge of the end of another one.
struct PeerEnd {
  std::string why{};           // the connection's error
  bool is_told = false;        // tell_lost() has named the rank
  bool is_of_network = false;  // the process may live

  BackendFailure failure(int rank) const {
    const std::string name = "rank " + std::to_string(rank);
    if (is_told)
      return {WorkerError::Kind::PeerLost, rank, name + " ended before it had done its part", true};
    return {WorkerError::Kind::PeerLost, rank, "lost the connection to " + name + ": " + why};
  }
};
inline BackendFailure loss_of_all_others() {
  return {WorkerError::Kind::PeerLost, std::nullopt, "lost the connections to the others"};
}
// Timeout of a message that waits for that rank, or for any.
inline BackendFailure lateness_of_peer(std::optional<int> peer) {
  return {WorkerError::Kind::Timeout, peer,
          (peer ? "rank " + std::to_string(*peer) + " did not do its"
                : std::string("the others did not do their")) +
              " part in time; run with DRUN_DEBUG=1 to learn which rank calls something else"};
}
// Broken: another operation of this rank has called abort().
inline BackendFailure aborted_failure() {
  return {WorkerError::Kind::Broken, std::nullopt, "another operation of this rank has failed"};
}

}  // namespace drun::worker
