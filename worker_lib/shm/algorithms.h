// core. The algorithms that move one collective's data through the stations, in turns of at most a
// station's size.
//
// all_reduce and reduce:
//   Short:   every rank puts its whole input; the ranks that need the result reduce all inputs. One
//            meeting.
//   Long:    per turn, each rank reduces its share from the data that the others have put, and puts
//            the result. After a second meeting, the ranks that need the result copy all shares.
//   Direct:  each rank reduces its share from all buffers into all buffers.
//   Read:    each rank reads the others' data of its share, a block at a time, and reduces it; then
//            it reads the others' shares.
//
// The others move parts between ranks. Data for all ranks uses the whole station. If each rank gets
// a different part, the station is divided into one lane per rank. The parts of reduce_scatter are
// reduced by their receivers.
//
// Result:  reductions go from left to right, so that the result has the same bits on every rank.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "worker_lib/shm/peer_memory.h"
#include "worker_lib/shm/rounds.h"

namespace drun::worker::shm {

// One of these ways is used:
//   put and take, alternately, with a meeting between them;
//   take_directly, if all ranks' buffers are in one region and all parts have the same size;
//   read, reads() times, with a meeting after each, if every rank can read the others' memory.
class Algorithm {
 public:
  virtual ~Algorithm() = default;

  // The number of turns of put and take; the same on every rank.
  virtual std::size_t turns() const = 0;
  // Writes this rank's data of that turn to its station.
  virtual void put(std::size_t turn) = 0;
  // Reads the data that the other ranks have put.
  virtual void take(std::size_t turn) = 0;
  // buffers[rank]: that rank's input, or its buffer that is reduced in place.
  virtual void take_directly(const std::vector<std::byte*>& buffers) = 0;
  // The number of reads; 0 if reading is not faster. The same on every rank.
  virtual std::size_t reads() const { return 0; }
  // False if some data could not be read.
  virtual bool read(std::size_t, const PeerBuffers&) { return true; }
};

// Calls `use` with the algorithm for `call`, which uses the call's pointers. `longest_bytes`: the
// size of the longest part between any two ranks, if parts are moved.
void with_algorithm(Rounds& rounds, const Call& call, Deadline deadline, std::size_t longest_bytes,
                    const std::function<void(Algorithm&)>& use);

}  // namespace drun::worker::shm
