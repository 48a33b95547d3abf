// core. The end of a group, known to all its ranks at once.
//
//     quiet --raise--> raised     (for good; the first reason stays)
//
// Whoever waits anywhere in the segment is woken by it, and asks for it at each look.
// Thread:  any, and any process.
#pragma once

#include "worker_lib/shm_segment.h"

namespace drun::worker::shm {

class Alarm {
 public:
  Alarm(const Segment& segment, int rank) : segment_(segment), rank_(rank) {}

  bool is_raised() const { return segment_.alarm().load() != 0; }
  // That rank's process has ended.
  void raise_lost(int rank) noexcept;
  // This rank has failed, or was aborted.
  void raise_given_up() noexcept;
  // Throws BackendFailure: PeerLost with the rank, or Broken if it was this one. Not raised:
  // nothing.
  void check() const;

 private:
  void raise(std::uint32_t reason) noexcept;

  Segment segment_;
  int rank_;
};

}  // namespace drun::worker::shm
