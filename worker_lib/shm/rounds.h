// core. The rounds that every collective is made of. In a round each rank shows the others
// something at its station, all meet, and then everybody looks at everybody's.
//
//     put into mine()   meet   read of(rank)   put into mine()   meet ...
//
// Stations: each rank has two, for rounds in turn. It writes to one again two rounds later: by then
//           all have come to the round in between, so they are done with what was there. One
//           meeting a round is all that is needed.
// Thread:   one at a time. Every rank meets equally often.
// Errors:   meet throws BackendFailure: Timeout naming who has not come, PeerLost for one who never
//           will, or the alarm's reason. A round that all have come to is met, whatever has
//           happened since.
#pragma once

#include <vector>

#include "drun/backend.h"
#include "worker_lib/shm/alarm.h"
#include "worker_lib/shm/segment.h"
#include "worker_lib/shm/wait.h"

namespace drun::worker::shm {

class Rounds {
 public:
  Rounds(const Segment& segment, int rank, Patience patience, Alarm& alarm)
      : segment_(segment), alarm_(alarm), rank_(rank), patience_(patience) {}

  int rank() const { return rank_; }
  int size() const { return segment_.size(); }

  // Of the coming round; kPayloadBytes of payload. The stamp is meet's.
  std::byte* mine() const { return segment_.payload(rank_, round_); }
  Station& my_station() const { return segment_.station(rank_, round_); }

  void meet(Deadline deadline);

  // What was read of others' own memory is what they had there, and not what a rank that has given
  // up has there now: or throws the alarm's reason.
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
  Alarm& alarm_;
  int rank_;
  Patience patience_;
  std::uint32_t round_ = 0;
};

}  // namespace drun::worker::shm
