// edge. Connects the ranks of a node so that they share memory.
//
//     rank 0: creates the memory, listens, puts the socket's name into the store, waits for all
//             ranks, then answers
//     others: read the name from the store, connect, send rank, size and the cores they are bound
//             to, and receive the memory and the cores of all, or an error
//
// Trust:   both sides accept only processes of the same user. Another process that knows the name
//          gets nothing and delays no rank.
// Ends:    the connections stay open, so that they show when a process ends: rank 0 has one to each
//          other rank, and the others have one to rank 0. If the other process is visible, there is
//          also a pidfd, because a forked child keeps its parent's connections open.
// Errors:  BackendFailure: Timeout with the missing ranks, on all connected ranks; or the store's
//          error.
#pragma once

#include <vector>

#include "drun/backend.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_lib/shm/cores.h"

namespace drun::worker::shm {

struct Lifelines {
  std::vector<UniqueFd> fds;
  std::vector<Lifeline> lines;  // refer to `fds`
};

struct Connection {
  UniqueFd segment;  // of the requested size
  UniqueFd regions;  // empty memory that can grow
  Lifelines lifelines;
  CoreMask cores{};  // all cores to which any rank is bound
};

Connection connect_ranks(const BackendContext& context, std::size_t segment_bytes);

}  // namespace drun::worker::shm
