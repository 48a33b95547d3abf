// edge. A mesh over Gloo's TCP. gloo_mesh.cc is the one source that sees Gloo.
//
// Slots:   the top byte is not 0 to 0x10, nor 0xFF. The receiver must have room for all that is
//          sent: Gloo ends the process otherwise.
// Waits:   a send's until the receiver takes it. The group aborts at the deadline; a second later
//          Gloo gives up by itself, and closes all connections.
// Lines:   lifelines take a thread: there are none unless the context asks for a lookout.
// Source:  Gloo's traps that this is built around: a connection that breaks wakes who waits for a
//          message that is not on its way yet, but not who waits for the rest of one, nor who
//          receives from any (transport/tcp/pair.cc, signalException, in every version).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "worker_lib/mesh/mesh.h"

namespace drun::worker {

// Must be the same on all ranks: builds of different Gloo versions do not understand each other.
std::string gloo_build();

class GlooMesh final : public Mesh {
 public:
  // Connects to every other rank. Errors: also the store's WorkerError.
  explicit GlooMesh(const BackendContext& context);
  ~GlooMesh() override;
  GlooMesh(const GlooMesh&) = delete;
  GlooMesh& operator=(const GlooMesh&) = delete;

  std::string name() const override { return "gloo"; }
  int rank() const override;
  int size() const override;
  Started send(int to, Slot slot, const void* data, std::size_t size_bytes) override;
  Started recv(int from, Slot slot, void* data, std::size_t size_bytes) override;
  Started recv_any(Slot slot, void* data, std::size_t size_bytes) override;

  void abort() noexcept override;
  bool keeps_deadlines() const override { return false; }
  std::vector<Lifeline> lifelines() const override;
  void tell_lost(int rank) noexcept override;

 private:
  struct Channel;
  struct State;
  class OnChannel;
  std::unique_ptr<State> state_;
};

}  // namespace drun::worker
