// edge. Messages between the processes of one group, over Gloo. gloo_mesh.cc is the one source that
// sees Gloo.
//
// Slots:   say which message meets which: a send and a receive of the same two ranks and slot, in
//          the order they were started in. The receiver must have room for all that is sent: Gloo
//          ends the process otherwise. The top byte is not 0 to 0x10, nor 0xFF.
// Memory:  stays where it is until wait() has returned or the Message is gone; then Gloo does not
//          touch it any more.
// Thread:  any, all at once; one Message: one at a time.
// Errors:  throws BackendFailure. PeerLost names who cannot be reached. Broken: somebody called
//          abort(). After a failure the mesh may do nothing any more (Gloo closes all connections
//          when a wait times out).
// Source:  Gloo's traps that this is built around: a connection that breaks wakes who waits for a
//          message that is not on its way yet, but not who waits for the rest of one, nor who
//          receives from any (transport/tcp/pair.cc, signalException, in every version).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "drun/backend.h"

namespace drun::worker {

// Must be the same on all ranks: builds of different Gloo versions do not understand each other.
std::string gloo_build();

class GlooMesh {
  struct Channel;

 public:
  using Slot = std::uint64_t;

  // Connects to every other rank. Errors: also the store's WorkerError.
  explicit GlooMesh(const BackendContext& context);
  ~GlooMesh();
  GlooMesh(const GlooMesh&) = delete;
  GlooMesh& operator=(const GlooMesh&) = delete;

  // Under way; stops when destroyed. Outlived by the mesh.
  class Message {
   public:
    Message() = default;
    Message(Message&& other) noexcept;
    Message& operator=(Message&& other) noexcept;
    ~Message();
    // Until sent (which needs the receiver) or received; returns the other rank. The group aborts
    // at the deadline; a second later Gloo gives up by itself. Once.
    int wait(Deadline deadline);

   private:
    friend class GlooMesh;
    Message(GlooMesh& mesh, Channel& channel) : mesh_(&mesh), channel_(&channel) {}
    GlooMesh* mesh_ = nullptr;
    Channel* channel_ = nullptr;
  };

  int rank() const;
  int size() const;
  Message send(int to, Slot slot, const void* data, std::size_t size_bytes);
  Message recv(int from, Slot slot, void* data, std::size_t size_bytes);
  // From the first of the others that sends. Waits also when some of them are gone.
  Message recv_any(Slot slot, void* data, std::size_t size_bytes);

  // Wakes all waits within milliseconds and closes all connections, which the other ranks see.
  void abort() noexcept;
  // That process has ended: nobody waits for it any longer than what it has sent may take.
  void tell_lost(int rank) noexcept;
  // One for each other rank, readable when the connection to it has ended; valid as long as the
  // mesh. They take a thread: there are none unless the context asks for a lookout.
  std::vector<Lifeline> lifelines() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace drun::worker
