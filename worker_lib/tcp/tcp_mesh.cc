#include "worker_lib/tcp/tcp_mesh.h"

#include <optional>
#include <utility>

#include "worker_lib/mesh/mesh_backend.h"
#include "worker_lib/tcp/engine.h"

namespace drun::worker {

class TcpMesh::Sending final : public Message {
 public:
  Sending(tcp::Engine& engine, int to, Slot slot, const void* data, std::size_t size_bytes)
      : engine_(engine),
        send_{.to = to,
              .slot = slot,
              .data = static_cast<const char*>(data),
              .size_bytes = size_bytes} {
    engine_.start(send_);
  }
  Sending(const Sending&) = delete;
  Sending& operator=(const Sending&) = delete;
  ~Sending() override {
    if (!is_over_) engine_.give_up(send_);
  }
  int wait(Deadline deadline) override {
    engine_.wait(send_, deadline);
    is_over_ = true;
    return send_.to;
  }
  std::optional<bool> is_done() override { return engine_.would_end(send_); }

 private:
  tcp::Engine& engine_;
  tcp::Send send_;
  bool is_over_ = false;
};

class TcpMesh::Receiving final : public Message {
 public:
  Receiving(tcp::Engine& engine, std::optional<int> from, Slot slot, void* data,
            std::size_t room_bytes, ClaimSide claim = {})
      : engine_(engine),
        receive_{.from = from,
                 .slot = slot,
                 .data = static_cast<char*>(data),
                 .room_bytes = room_bytes,
                 .claim = claim} {
    engine_.start(receive_);
  }
  Receiving(const Receiving&) = delete;
  Receiving& operator=(const Receiving&) = delete;
  ~Receiving() override {
    if (!is_over_) engine_.give_up(receive_);
  }
  int wait(Deadline deadline) override {
    const int from = engine_.wait(receive_, deadline);
    is_over_ = true;
    return from;
  }
  std::optional<bool> is_done() override { return engine_.would_end(receive_); }

 private:
  tcp::Engine& engine_;
  tcp::Receive receive_;
  bool is_over_ = false;
};

TcpMesh::TcpMesh(const BackendContext& context) : engine_(std::make_unique<tcp::Engine>(context)) {}
TcpMesh::~TcpMesh() = default;

int TcpMesh::rank() const { return engine_->rank(); }
int TcpMesh::size() const { return engine_->size(); }
// Pieces that need no grant, even if their size is rounded up; or that use all lanes.
std::size_t TcpMesh::piece_bytes(std::size_t part_bytes) const {
  const bool uses_lanes = engine_->has_lanes() && part_bytes >= 4 * tcp::kLeastLaneBytes;
  return uses_lanes ? 2 * tcp::kLeastLaneBytes : tcp::kEagerBytes - 512;
}

Mesh::Started TcpMesh::send(int to, Slot slot, const void* data, std::size_t size_bytes) {
  return std::make_unique<Sending>(*engine_, to, slot, data, size_bytes);
}

Mesh::Started TcpMesh::recv(int from, Slot slot, void* data, std::size_t size_bytes) {
  return std::make_unique<Receiving>(*engine_, from, slot, data, size_bytes);
}

Mesh::Started TcpMesh::recv_any(Slot slot, void* data, std::size_t size_bytes, ClaimSide claim) {
  return std::make_unique<Receiving>(*engine_, std::nullopt, slot, data, size_bytes, claim);
}

void TcpMesh::abort() noexcept { engine_->abort(); }
std::vector<Lifeline> TcpMesh::lifelines() const { return engine_->lifelines(); }
void TcpMesh::tell_lost(int rank) noexcept { engine_->tell_lost(rank); }

std::unique_ptr<Backend> connect_tcp(const BackendContext& context) {
  return make_mesh_backend(std::make_unique<TcpMesh>(context), context.is_debug);
}

}  // namespace drun::worker
