// core. The collectives of a group. Every rank publishes its call, all ranks compare the calls, and
// then data moves.
//
//     put the first part with the call's signature, meet, compare, take, put, meet, take ...
//
// Data moves through the stations (rounds.h), as many bytes per round as fit into one, or in one of
// these ways:
//
// Direct:  a rank with a long buffer in a region publishes the buffer's place. If the buffers of
//          all ranks are in the same region, nothing is copied, and a last meeting releases the
//          buffers.
// Read:    a rank that can read other ranks' memory (peer_memory.h) publishes its buffer's address.
//          If all ranks do, and each can read all others, no rank puts data. Each rank tries this
//          and publishes the result before anything is changed.
// Uneven:  if a rank cannot know all sizes (gather_v, scatter_v, all_to_all_v), an additional round
//          before exchanges them: the elements that each rank gives and expects. Different calls
//          never make a rank access memory outside the stations.
// Thread:  run and alloc: one at a time, in the same order on every rank.
// Errors:  BackendFailure: Mismatch on every rank, with the same text; and those of Rounds::meet.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "worker_lib/shm/peer_memory.h"
#include "worker_lib/shm/rounds.h"
#include "worker_lib/shm/segment.h"

namespace drun::worker::shm {

class Algorithm;

class Collectives {
 public:
  Collectives(const Segment& segment, int rank, SpinPolicy spin, AbortFlag& abort_flag,
              Regions& regions, PeerMemory& peers)
      : rounds_(segment, rank, spin, abort_flag), regions_(regions), peers_(peers) {}

  void run(const Call& call, const Turn& turn);
  // Creates a region and returns this rank's part of it.
  std::shared_ptr<void> alloc(std::size_t size_bytes, const Turn& turn);

 private:
  enum class Way { WithData, InTurns, Direct, Read };

  void perform(const Call& call, const Turn& turn, Algorithm& algorithm, bool is_open);
  void move_in_turns(Algorithm& algorithm, std::size_t first, Deadline deadline);
  void move_directly(const Call& call, Algorithm& algorithm, Deadline deadline);
  void move_by_reading(const Call& call, Algorithm& algorithm, Deadline deadline);
  // A meeting in which each rank publishes whether it succeeded. True if all did.
  bool are_all_well(bool is_well, Deadline deadline);
  // Meets, compares the calls, and selects how data moves.
  Way open(Signature signature, const std::optional<Place>& place, const Turn& turn);
  void check_calls(const Turn& turn) const;
  // Exchanges sizes for a call whose sizes not every rank knows. Returns the longest part in bytes.
  std::size_t agree_on_sizes(const Call& call, const Turn& turn);
  std::optional<Place> place_of(const Call& call, const Algorithm& algorithm) const;

  Rounds rounds_;
  Regions& regions_;
  PeerMemory& peers_;
};

}  // namespace drun::worker::shm
