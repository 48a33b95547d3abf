// core. The end of a group, and of its processes, known to all ranks at once.
//
//     quiet --raise--> raised     (for good; the first reason stays)
//
// A lost rank is no alarm by itself: it may have done its part of everything. An operation that
// still needs it fails; its group publishes the cause and then aborts, which raises the alarm. Each
// change wakes all waiting threads of the segment, which check for it. Thread:  any, and any
// process.
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
  // This rank was aborted; because of the rank that check_lost found, if it found one.
  void raise() noexcept;

  // Throws BackendFailure. PeerLost for the first of these that is lost; none: nothing.
  void check_lost(const std::vector<int>& ranks) const;
  // PeerLost with the reason's rank, or Broken if it is this one. Not raised: nothing.
  void check() const;

 private:
  void wake_all() noexcept;

  Segment segment_;
  int rank_;
  mutable std::atomic<int> found_ = -1;  // by check_lost, first
};

}  // namespace drun::worker::shm
