// edge. How the ranks of a node come to share memory.
//
//     rank 0: makes the memory, listens, puts the name into the store, waits for all, then answers
//     others: name from the store, connect, "I am rank r of n, bound to these cores", get the
//             answer: memory and the cores of all, or why not
//
// Trust:   both sides accept only processes of the same user; a stranger that knows the name gets
//          nothing and delays no rank.
// Ends:    the connections stay open, to show when a process ends: rank 0 has one to each other
//          rank, the others have one to rank 0. Where the other process can be seen there is a
//          pidfd too: a forked child keeps its parent's connections open.
// Errors:  BackendFailure: Timeout naming who did not come, on all who did; or the store's error.
#pragma once

#include <vector>

#include "drun/backend.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_lib/shm/cores.h"

namespace drun::worker::shm {

struct Lifelines {
  std::vector<UniqueFd> fds;
  std::vector<Lifeline> lines;  // of these
};

struct Connection {
  UniqueFd segment;  // of the size that was asked for
  UniqueFd regions;  // empty memory, to grow
  Lifelines lifelines;
  CoreMask cores{};  // that any of the ranks is bound to
};

Connection connect_ranks(const BackendContext& context, std::size_t segment_bytes);

}  // namespace drun::worker::shm
