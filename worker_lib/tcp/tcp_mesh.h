// edge. A mesh over TCP connections of our own (frames.h).
//
// Progress:  no thread. Who waits for a message works for all messages of the mesh: it looks again
//            and again for as long as a core can be spared for that, then sleeps in epoll. Others
//            that wait meanwhile are woken when it is done. Messages of at most kEagerBytes are on
//            their way when send() returns, if the receiver's window has room; the rest goes on
//            while anybody here waits.
// Ends:      a connection that ends says that the process at its other end has. What it had sent
//            before still arrives.
// Security:  nothing is encrypted. A rank is reached by who knows its random key, which is in the
//            store only, so whoever may use the job's store may connect
//            (docs/reference/security.md).
// Errors:    Timeout names the rank that did not do its part. A connection that says what makes no
//            sense is closed: PeerLost.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "worker_lib/mesh/mesh.h"

namespace drun::worker {
namespace tcp {
class Engine;
}

class TcpMesh final : public Mesh {
 public:
  // Listens, and publishes where; connections are made when they are needed, or all at once for a
  // lookout. Throws BackendFailure, or the store's WorkerError.
  explicit TcpMesh(const BackendContext& context);
  ~TcpMesh() override;
  TcpMesh(const TcpMesh&) = delete;
  TcpMesh& operator=(const TcpMesh&) = delete;

  std::string name() const override { return "tcp"; }
  int rank() const override;
  int size() const override;
  Started send(int to, Slot slot, const void* data, std::size_t size_bytes) override;
  Started recv(int from, Slot slot, void* data, std::size_t size_bytes) override;
  Started recv_any(Slot slot, void* data, std::size_t size_bytes) override;

  void abort() noexcept override;
  bool keeps_deadlines() const override { return true; }
  std::vector<Lifeline> lifelines() const override;
  void tell_lost(int rank) noexcept override;

 private:
  class Sending;
  class Receiving;
  std::unique_ptr<tcp::Engine> engine_;
};

std::unique_ptr<Backend> connect_tcp(const BackendContext& context);

}  // namespace drun::worker
