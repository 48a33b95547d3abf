// edge. What moves data between the ranks of one group. The group (group.h) checks arguments,
// orders collectives and keeps deadlines; a backend only moves bytes.
//
// Blocks:  every operation, until it is done, failed, aborted or somewhat past its deadline.
// Thread:  collectives come from one thread, in order; send, recv and abort from any.
// Errors:  throws BackendFailure. After one, or after abort, nothing else works. Kind Broken:
// another
//          operation of this rank failed, at the same moment, and will say why.
// Owner:   the group; destroyed when no operation is running.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "drun/elements.h"
#include "drun/error.h"
#include "worker_lib/call.h"

namespace drun::worker {

using Deadline = std::chrono::steady_clock::time_point;

struct BackendFailure : std::runtime_error {
  BackendFailure(WorkerError::Kind what_kind, std::optional<int> which_peer,
                 const std::string& message)
      : std::runtime_error(message), kind(what_kind), peer(which_peer) {}
  WorkerError::Kind kind;
  std::optional<int> peer;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Compares this rank's n-th call with everybody's: a barrier that throws Mismatch on every rank
  // if they differ. `sequence` is n, the same on all ranks, different for each collective.
  virtual void agree(const Call& call, std::uint32_t sequence, Deadline deadline) = 0;
  // The ranks have agreed, and there are elements.
  virtual void all_reduce(Elements data, ReduceOp op, std::uint32_t sequence,
                          Deadline deadline) = 0;
  virtual void broadcast(Elements data, int root, std::uint32_t sequence, Deadline deadline) = 0;

  // To another rank. Throws Mismatch, on the receiver, if type or count differ.
  virtual void send(ConstElements data, int to, int tag, Deadline deadline) = 0;
  virtual void recv(Elements data, int from, int tag, Deadline deadline) = 0;

  // Wakes whoever is inside an operation and closes all connections, which the other ranks see.
  virtual void abort() noexcept = 0;
};

}  // namespace drun::worker
