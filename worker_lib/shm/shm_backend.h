// edge. The backend of ranks that are all on one node: shared memory.
//
// Buffers:  any. Those of alloc_shared longer than 16 KB are worked on where they are, if every
//           rank's lies in its part of the same allocation and all parts have the same size.
// Waiting:  a core is kept busy for microseconds, never longer; see wait.h.
// Checks:   what the ranks call is compared at every call, with or without DRUN_DEBUG.
// Messages: short ones (8 KB) are done when sent; longer ones are copied by their receiver from
//           where they are, if the kernel allows it; see messages.h and peer_memory.h. So are two
//           ranks' sums of 3 to 32 MB.
// Lost:     rank 0 watches every process, the others watch rank 0's; all share their findings.
// Leaves:   nothing behind, whatever dies when.
#pragma once

#include <memory>

#include "drun/backend.h"
#include "worker_lib/shm/connect.h"
#include "worker_lib/shm/segment.h"

namespace drun::worker {

// Connects to every other rank. Throws BackendFailure, or the store's WorkerError.
std::unique_ptr<Backend> connect_shm(const BackendContext& context);

namespace shm {

// The parts of a connected backend.
struct Parts {
  int rank = 0;
  Segment segment;
  UniqueFd regions;
  Lifelines lifelines = {};
  bool reads_peers = true;  // others' own memory, where that is allowed
  CoreMask cores = {};      // that any of the ranks is bound to; empty: as this process
};
std::unique_ptr<Backend> make_backend(Parts parts);
Parts connect_parts(const BackendContext& context);

}  // namespace shm
}  // namespace drun::worker
