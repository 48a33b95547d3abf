// core. The interface of a transport: messages between the processes of one group. Collectives and
// messages are built on it (mesh_backend.h).
//
// Slots:   match messages: a send and a receive with the same two ranks and slot, in the order in
//          which they were started.
// Memory:  stays where it is until wait() has returned or thrown, or the Message is gone; then the
//          mesh does not touch it any more.
// Thread:  any, all at once; one Message: one at a time.
// Errors:  throws BackendFailure. PeerLost names who cannot be reached. Broken: another operation
//          of this rank called abort(). After a failure the mesh may do nothing any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "drun/backend.h"

namespace drun::worker {

class Mesh {
 public:
  using Slot = std::uint64_t;

  // Under way; stops when destroyed. Outlived by the mesh.
  class Message {
   public:
    virtual ~Message() = default;
    // Until sent or received; returns the other rank. Once.
    virtual int wait(Deadline deadline) = 0;
  };
  using Started = std::unique_ptr<Message>;

  virtual ~Mesh() = default;

  virtual std::string name() const = 0;  // of the transport: "tcp"
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // A receiver must have room for all that is sent; what is sent may be shorter.
  virtual Started send(int to, Slot slot, const void* data, std::size_t size_bytes) = 0;
  virtual Started recv(int from, Slot slot, void* data, std::size_t size_bytes) = 0;
  // From the first of the others that sends. Waits also when some of them are gone.
  virtual Started recv_any(Slot slot, void* data, std::size_t size_bytes) = 0;

  // As those of Backend.
  virtual void abort() noexcept = 0;
  virtual bool keeps_deadlines() const = 0;
  virtual std::vector<Lifeline> lifelines() const = 0;
  virtual void tell_lost(int rank) noexcept = 0;
};

}  // namespace drun::worker
