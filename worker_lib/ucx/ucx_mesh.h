// edge. A mesh over UCX: InfiniBand, RoCE and the other networks and transports that UCX selects on
// this machine (UCX_TLS, UCX_NET_DEVICES). libucp.so.0 is loaded on first use. Only builds with
// UCX's headers have it; others use without_ucx.cc.
//
// Messages:  UCX's active messages, in UCX's eager and rendezvous protocols. UCX may deliver them
//            out of order; each has a number, by which the receiver restores the order.
// Progress:  as tcp: no thread. A waiting thread polls for a short time, then sleeps in poll().
// Death:     UCX reports some broken connections, depending on the transport. A lookout
//            (BackendContext) additionally has a TCP connection to each rank.
// Stopping:  UCX cannot cancel a message, so that destroying an unfinished one ends the mesh.
// Security:  neither encrypted nor authenticated.
// Errors:    Unsupported if UCX is missing or too old; System with UCX's text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "worker_lib/mesh/mesh.h"

namespace drun::worker {
namespace ucx {
class Engine;
}

class UcxMesh final : public Mesh {
 public:
  // Exchanges UCX's addresses with all ranks over the store, which is not used afterwards. Throws
  // BackendFailure, or the store's WorkerError.
  explicit UcxMesh(const BackendContext& context);
  ~UcxMesh() override;
  UcxMesh(const UcxMesh&) = delete;
  UcxMesh& operator=(const UcxMesh&) = delete;

  std::string name() const override { return "ucx"; }
  int rank() const override;
  int size() const override;
  Started send(int to, Slot slot, const void* data, std::size_t size_bytes) override;
  Started recv(int from, Slot slot, void* data, std::size_t size_bytes) override;
  Started recv_any(Slot slot, void* data, std::size_t size_bytes, ClaimSide claim) override;

  void abort() noexcept override;
  bool keeps_deadlines() const override { return true; }
  std::vector<Lifeline> lifelines() const override;
  void tell_lost(int rank) noexcept override;

 private:
  class Sending;
  class Receiving;
  std::unique_ptr<ucx::Engine> engine_;
  std::unique_ptr<Mesh> lookout_;  // null: not asked for
};

// Whether this library was built with UCX's headers.
bool has_ucx();

std::unique_ptr<Backend> connect_ucx(const BackendContext& context);

}  // namespace drun::worker
