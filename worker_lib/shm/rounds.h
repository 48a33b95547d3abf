// core. The rounds of every collective. In a round each rank shows the others data at its station,
// all ranks meet, and then each reads the stations of all.
//
//     put into mine()   meet   read of(rank)   put into mine()   meet ...
//
// Stations: each rank has two, for rounds in turn. It writes to one again two rounds later: by then
//           all ranks have reached the round in between, so they have read it. One meeting per
//           round is enough.
// Thread:   one at a time. Every rank meets equally often.
// Errors:   meet throws BackendFailure: Timeout naming a rank that is missing, PeerLost for one
//           that has ended, or the alarm's reason. A round that all ranks have reached succeeds,
//           whatever has happened since.
#pragma once

#include <vector>

#include "drun/backend.h"
#include "worker_lib/shm/abort_flag.h"
#include "worker_lib/shm/segment.h"
#include "worker_lib/shm/wait.h"

namespace drun::worker::shm {

class Rounds {
 public:
  Rounds(const Segment& segment, int rank, SpinPolicy patience, AbortFlag& alarm)
      : segment_(segment), alarm_(alarm), rank_(rank), patience_(patience) {}

  int rank() const { return rank_; }
  int size() const { return segment_.size(); }

  // Of the coming round; kPayloadBytes of payload. The stamp is meet's.
  std::byte* mine() const { return segment_.payload(rank_, round_); }
  Station& my_station() const { return segment_.station(rank_, round_); }

  void meet(Deadline deadline);

  // Confirms that data read from other ranks' memory was valid, and not of a rank that has given up
  // since; otherwise throws the alarm's reason.
  void check_alarm() const { alarm_.check(); }

  // Of the round that was met last; valid until the next meeting.
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
  AbortFlag& alarm_;
  int rank_;
  SpinPolicy patience_;
  std::uint32_t round_ = 0;
};

}  // namespace drun::worker::shm
