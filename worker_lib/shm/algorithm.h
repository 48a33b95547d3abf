// core. The interface of an algorithm that moves one collective's data through the stations, in
// turns of at most a station's size.
//
// One of these ways is used:
//   put and take, alternately, with a meeting between them;
//   take_directly, if all ranks' buffers are in one region;
//   read, reads() times, with a meeting after each, if every rank can read the others' memory.
//
// Lives for one call and uses its pointers.
#pragma once

#include <cstddef>
#include <vector>

#include "worker_lib/shm/peer_memory.h"
#include "worker_lib/shm/rounds.h"

namespace drun::worker::shm {

class Algorithm {
 public:
  Algorithm() = default;
  virtual ~Algorithm() = default;
  Algorithm(const Algorithm&) = delete;
  Algorithm& operator=(const Algorithm&) = delete;

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

}  // namespace drun::worker::shm
