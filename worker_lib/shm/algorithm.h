// core. How one collective moves its data through the stations, a stationful at a time.
//
// One of these ways:
//   put and take, in turn, with a meeting between them;
//   take_directly, when all ranks' buffers lie in one region;
//   read, as often as reads() says, with a meeting after each, when every rank can read the others'
//   memory.
//
// Owner:   lives for one call, whose pointers it uses.
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

  // How often to put and take; the same on every rank.
  virtual std::size_t turns() const = 0;
  // This rank's share of that turn to its station.
  virtual void put(std::size_t turn) = 0;
  // The data that the other ranks have put.
  virtual void take(std::size_t turn) = 0;
  // buffers[rank]: that rank's input, or what it reduces in place.
  virtual void take_directly(const std::vector<std::byte*>& buffers) = 0;
  // 0: not faster that way; the same on every rank.
  virtual std::size_t reads() const { return 0; }
  // False: some of it could not be read.
  virtual bool read(std::size_t, const PeerBuffers&) { return true; }
};

}  // namespace drun::worker::shm
