// edge. A mesh over Gloo's TCP. Only gloo_mesh.cc includes Gloo.
//
// Slots:   the top byte is not 0 to 0x10, nor 0xFF. The receiver's buffer must have room for the
//          whole message; Gloo ends the process otherwise.
// Waits:   a send waits until the receiver has taken it. The group aborts at the deadline; a second
//          later Gloo gives up by itself and closes all connections.
// Lookout: lifelines need a thread, so there are none unless the context requests a lookout.
// Quirks:  in every version of Gloo, a broken connection wakes threads that wait for a message that
//          has not begun to arrive, but not threads that wait for the rest of a message
//          (transport/tcp/pair.cc, signalException).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "worker_lib/mesh/mesh.h"

namespace drun::worker {

// The version of Gloo. Must be the same on all ranks, because different versions are incompatible.
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
