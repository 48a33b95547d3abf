// core. The interface of a transport: messages between the processes of one group, and the backend
// that is built on it.
//
// Slots:   match messages: a send and a receive with the same two ranks and slot, in the order in
//          which they were started.
// Memory:  must stay valid until finish() has returned or thrown, or the Transfer is destroyed. The
//          mesh does not access it afterwards.
// Thread:  any, concurrently; for one Transfer, one at a time.
// Errors:  throws BackendFailure: PeerLost with the unreachable rank; Broken if another operation
//          of this rank called abort(). After a failure no operation needs to work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "drun/backend.h"
#include "worker_lib/mesh/matcher.h"

namespace drun::worker {

class Mesh {
 public:
  using Slot = std::uint64_t;

  // A message. Call finish at most once. Destroying it cancels the message. The mesh must outlive
  // it.
  using Started = std::unique_ptr<Transfer>;

  virtual ~Mesh() = default;

  virtual std::string name() const = 0;  // the transport: "tcp"
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // As in Exchange.
  virtual std::size_t piece_bytes(std::size_t part_bytes) const;

  // The receiver's buffer must have room for the message; the message may be shorter.
  virtual Started send(int to, Slot slot, const void* data, std::size_t size_bytes) = 0;
  virtual Started recv(int from, Slot slot, void* data, std::size_t size_bytes) = 0;
  // Receives from the first rank that sends. Keeps waiting even if some ranks have ended. By
  // default: Unsupported.
  virtual Started recv_any(Slot slot, void* data, std::size_t size_bytes, ClaimSide claim);

  // As in Backend.
  virtual void abort() noexcept = 0;
  virtual bool keeps_deadlines() const = 0;
  virtual std::vector<Lifeline> lifelines() const = 0;
  virtual bool tell_lost(int rank) noexcept = 0;
};

// A backend over a mesh: all collectives, with the algorithms of worker_lib/algorithms, and
// messages.
//
// The mesh identifies every call by a hash of its arguments. Calls that differ between ranks are
// therefore never matched: they time out, or with DRUN_DEBUG=1 fail at once with Mismatch on every
// rank.
//
// `messages`: the mesh for messages, which also has the lifelines; null: the same.
std::unique_ptr<Backend> make_mesh_backend(std::unique_ptr<Mesh> mesh, bool is_debug,
                                           std::unique_ptr<Mesh> messages = nullptr);

}  // namespace drun::worker
