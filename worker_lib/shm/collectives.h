// core. The collectives of a group: every rank shows its call, all compare, then data moves.
//
//     put the first stationful with the call's signature, meet, compare, take, put, meet, take ...
//
// Direct:  a rank whose long buffer lies in a region announces that instead of putting; if all lie
//          in the same region nothing is copied, and a last meeting releases the buffers.
// Read:    a rank that may read the others' memory (peer_memory.h) says where its buffer is instead
//          of putting; if all do, and each can, no rank puts. Each rank tries that and shows the
//          result before anything is changed.
// Uneven:  where a rank cannot know all sizes (gather_v, scatter_v, all_to_all_v) a round before
//          tells them: what each rank gives and expects. The stations are never left, whatever the
//          ranks disagree about.
// Thread:  run and alloc: one at a time, in the same order on every rank.
// Errors:  BackendFailure: Mismatch on every rank, with the same words; and those of Rounds::meet.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "worker_lib/shm/algorithm.h"
#include "worker_lib/shm/regions.h"
#include "worker_lib/shm/rounds.h"

namespace drun::worker::shm {

class Collectives {
 public:
  Collectives(const Segment& segment, int rank, SpinPolicy patience, AbortFlag& alarm,
              Regions& regions, PeerMemory& peers)
      : rounds_(segment, rank, patience, alarm), regions_(regions), peers_(peers) {}

  void run(const Call& call, const Turn& turn);
  // Of the regions, this rank's part of a new one.
  std::shared_ptr<void> alloc(std::size_t size_bytes, const Turn& turn);

 private:
  enum class Way { WithData, InTurns, Direct, Read };

  void perform(const Call& call, const Turn& turn, Algorithm& algorithm, bool is_open);
  void move_in_turns(Algorithm& algorithm, std::size_t first, Deadline deadline);
  void move_directly(const Call& call, Algorithm& algorithm, Deadline deadline);
  void move_by_reading(const Call& call, Algorithm& algorithm, Deadline deadline);
  // A meeting at which each rank says whether it is well; whether all are.
  bool are_all_well(bool is_well, Deadline deadline);
  // Meets, compares, and says how the data goes.
  Way open(Signature signature, const std::optional<Place>& place, const Turn& turn);
  [[noreturn]] void throw_mismatch(const Turn& turn) const;
  // For a call whose sizes not every rank knows; returns the longest part in bytes.
  std::size_t agree_on_sizes(const Call& call, const Turn& turn);
  std::optional<Place> place_of(const Call& call, const Algorithm& algorithm) const;

  Rounds rounds_;
  Regions& regions_;
  PeerMemory& peers_;
};

}  // namespace drun::worker::shm
