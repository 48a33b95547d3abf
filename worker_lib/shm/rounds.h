// core. The rounds of collectives. In a round, each rank publishes data in its station, all ranks
// meet, and then each rank reads the stations of all.
//
//     put into mine()   meet   read of(rank)   put into mine()   meet ...
//
// Stations: each rank has two, used in alternate rounds. It writes to one again two rounds later:
//           by then all ranks have reached the round in between, so they have read it. One meeting
//           per round is therefore enough.
// Thread:   one at a time. Every rank meets equally often.
// Errors:   meet throws BackendFailure: Timeout with a missing rank, PeerLost for one that has
//           ended, or the abort flag's reason. A round that all ranks have reached succeeds, even
//           if a failure has happened since.
#pragma once

#include <vector>

#include "drun/backend.h"
#include "worker_lib/shm/segment.h"
#include "worker_lib/shm/wait.h"

namespace drun::worker::shm {

class Rounds {
 public:
  Rounds(const Segment& segment, int rank, SpinPolicy spin, AbortFlag& abort_flag)
      : segment_(segment), abort_flag_(abort_flag), rank_(rank), spin_(spin) {}

  int rank() const { return rank_; }
  int size() const { return segment_.size(); }

  // This rank's station in the next round, with kPayloadBytes of payload. meet() writes the stamp.
  std::byte* mine() const { return segment_.payload(rank_, round_); }
  Station& my_station() const { return segment_.station(rank_, round_); }

  void meet(Deadline deadline);

  // Call after reading other ranks' memory: throws the abort flag's reason if a rank may have
  // failed before the read, so that the data may be invalid.
  void check_alarm() const { abort_flag_.check(); }

  // Stations of the round of the last meeting; valid until the next one.
  const std::byte* of(int rank) const { return segment_.payload(rank, round_ - 1); }
  const Station& station_of(int rank) const { return segment_.station(rank, round_ - 1); }

 private:
  void await(int rank, Deadline deadline) const;
  bool has_come(int rank) const {
    return segment_.station(rank, round_).stamp.load() == round_ + 1;
  }
  std::vector<int> missing() const;
  void throw_timeout() const;

  Segment segment_;
  AbortFlag& abort_flag_;
  int rank_;
  SpinPolicy spin_;
  std::uint32_t round_ = 0;
};

}  // namespace drun::worker::shm
