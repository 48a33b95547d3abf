// edge. The backend of ranks that are all on one node: shared memory.
//
// Sizes:   any; from 16 KB on (4 ranks; 64 KB: 2 ranks) buffers of alloc_shared are worked on where
//          they are if every rank's lies in memory that they have allocated together.
// Waiting: see shm_wait.h; never a core kept busy for more than microseconds.
// Checks:  what the ranks call is compared at every call, with or without DRUN_DEBUG.
// Messages: short ones (8 KB) are done when sent; see shm_messages.h.
// Left behind: nothing, whatever dies when.
#pragma once

#include <memory>

#include "drun/backend.h"
#include "worker_lib/shm_connect.h"
#include "worker_lib/shm_segment.h"

namespace drun::worker {

// Connects to every other rank. Throws BackendFailure, or the store's WorkerError.
std::unique_ptr<Backend> connect_shm(const BackendContext& context);

namespace shm {

// What a backend works with when it is connected.
struct Parts {
  int rank = 0;
  Segment segment;
  UniqueFd regions;
  Lifelines lifelines = {};
};
std::unique_ptr<Backend> make_backend(Parts parts);

}  // namespace shm
}  // namespace drun::worker
