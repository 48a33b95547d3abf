// core. Tells all ranks of a group when it ends, and which of their processes have ended.
//
//     quiet --raise--> raised     (permanent; the first reason is kept)
//
// A lost rank does not raise the flag by itself, because it may have done its part of everything.
// An operation that still needs it fails; its group publishes the cause and then aborts, which
// raises the flag. Each change wakes all waiting threads of the segment, which check the flag.
// Thread:  any, in any process.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "drun/backend.h"
#include "worker_lib/shm/segment.h"

namespace drun::worker::shm {

class AbortFlag {
 public:
  AbortFlag(const Segment& segment, int rank) : segment_(segment), rank_(rank) {}

  // Different after every change.
  std::uint32_t changes() const { return segment_.alarm().changes.load(); }

  void tell_lost(int rank) noexcept;
  bool is_lost(int rank) const { return segment_.lost(rank).load() != 0; }

  bool is_raised() const { return segment_.alarm().reason.load() != 0; }
  // This rank was aborted, because of the rank that check_lost found, if any.
  void raise() noexcept;

  // Throws BackendFailure (PeerLost) for the first of these ranks that is lost, if any.
  void check_lost(const std::vector<int>& ranks) const;
  // If raised: throws PeerLost with the rank of the reason, or Broken if that is this rank.
  void check() const;

 private:
  void wake_all() noexcept;

  Segment segment_;
  int rank_;
  mutable std::atomic<int> found_ = -1;  // first rank found by check_lost
};

}  // namespace drun::worker::shm
