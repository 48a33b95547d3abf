// edge. The backend for ranks on one node: shared memory.
//
// Buffers:  any. Buffers of alloc_shared longer than 16 KB are used in place if every rank's is in
//           its part of the same allocation and all parts have the same size.
// Waiting:  polls for microseconds only, then sleeps; see wait.h.
// Checks:   the ranks compare every call, with or without DRUN_DEBUG.
// Messages: short ones (32 KB) are done when sent. The receiver copies longer ones from the
// sender's
//           memory if the kernel allows it; see peer_memory.h. The same applies to reductions of 3
//           to 32 MB between two ranks.
// Lost:     rank 0 watches all processes, the others watch rank 0; all share their findings.
// Cleanup:  nothing is left behind, even if processes are killed.
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
  bool reads_peers = true;  // reads other ranks' memory where allowed
  CoreMask cores = {};      // to which any rank is bound; empty: those of this process
};
std::unique_ptr<Backend> make_backend(Parts parts);
Parts connect_parts(const BackendContext& context);

}  // namespace shm
}  // namespace drun::worker
