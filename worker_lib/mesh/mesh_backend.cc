#include "worker_lib/mesh/mesh_backend.h"

#include <optional>
#include <utility>
#include <vector>

#include "worker_lib/algorithms/collectives.h"
#include "worker_lib/algorithms/debug_check.h"
#include "worker_lib/algorithms/exchange.h"
#include "worker_lib/base/signature.h"
#include "worker_lib/mesh/mesh_messages.h"
#include "worker_lib/mesh/slots.h"

namespace drun::worker {
namespace {

// Every message is known by what it belongs to and its size, so none is ever given to a receiver
// that expects another.
class MeshExchange final : public Exchange {
 public:
  MeshExchange(Mesh& mesh, Traffic traffic, std::uint64_t hash, Deadline deadline)
      : Exchange(mesh.rank(), mesh.size()),
        mesh_(mesh),
        traffic_(traffic),
        hash_(hash),
        deadline_(deadline) {}

  std::size_t piece_bytes(std::size_t part_bytes) const override {
    return mesh_.piece_bytes(part_bytes);
  }

 private:
  Handle start_send(int to, const void* data, std::size_t size_bytes) override {
    return started([&] { return mesh_.send(to, slot_for(size_bytes), data, size_bytes); });
  }
  Handle start_recv(int from, void* data, std::size_t size_bytes) override {
    return started([&] { return mesh_.recv(from, slot_for(size_bytes), data, size_bytes); });
  }
  void finish(Handle handle) override {
    stopping_all([&] { messages_[handle]->wait(deadline_); });
    messages_[handle].reset();
    free_.push_back(handle);
  }

  std::uint64_t slot_for(std::size_t size_bytes) const {
    return make_slot(traffic_, mix(hash_, size_bytes));
  }
  template <typename Start>
  Handle started(Start&& start) {
    Mesh::Started message;
    stopping_all([&] { message = start(); });
    if (free_.empty()) {
      messages_.push_back(std::move(message));
      return messages_.size() - 1;
    }
    const Handle handle = free_.back();
    free_.pop_back();
    messages_[handle] = std::move(message);
    return handle;
  }
  template <typename Action>
  void stopping_all(Action&& action) {
    try {
      action();
    } catch (...) {
      messages_.clear();  // before the algorithm's memory is gone
      throw;
    }
  }

  Mesh& mesh_;
  Traffic traffic_;
  std::uint64_t hash_;
  Deadline deadline_;
  // By handle. The handles of finished messages are used again: a large collective starts tens of
  // thousands.
  std::vector<Mesh::Started> messages_;
  std::vector<Handle> free_;
};

class MeshBackend final : public Backend, public SharesReceives {
 public:
  MeshBackend(std::unique_ptr<Mesh> mesh, bool is_debug, std::unique_ptr<Mesh> other)
      : is_debug_(is_debug),
        mesh_(std::move(mesh)),
        other_(std::move(other)),
        messages_(other_ ? *other_ : *mesh_) {}

  std::string name() const override { return mesh_->name(); }
  std::string refusal(const Call& call) const override {
    return call.gpu ? name() + " works on memory of the host, not of a GPU" : "";
  }

  void run(const Call& call, const Turn& turn) override {
    if (is_debug_) {
      MeshExchange meeting(*mesh_, Traffic::Agreement, turn.sequence, turn.deadline);
      agree(meeting, call, turn.sequence);
      if (call.operation == Operation::Barrier) return;
      compare_counts(meeting, call, turn.sequence);
    }
    const std::uint64_t hash = mix(turn.sequence, signature_of(call, mesh_->size()));
    MeshExchange exchange(*mesh_, Traffic::Collective, hash, turn.deadline);
    run_collective(exchange, call);
  }

  std::unique_ptr<Transfer> start_send(const ConstElements& data, int to, int tag) override {
    return messages_.start_send(data, to, tag);
  }
  std::unique_ptr<Transfer> start_recv(const Elements& data, std::optional<int> from,
                                       int tag) override {
    return messages_.start_recv(data, from, tag, {});
  }
  std::unique_ptr<Transfer> start_recv_any(const Elements& data, int tag,
                                           ClaimSide claim) override {
    return messages_.start_recv(data, std::nullopt, tag, claim);
  }

  void abort() noexcept override {
    mesh_->abort();
    if (other_) other_->abort();
  }
  bool keeps_deadlines() const override { return mesh_->keeps_deadlines(); }
  std::vector<Lifeline> lifelines() const override { return mesh_->lifelines(); }
  void tell_lost(int rank) noexcept override {
    mesh_->tell_lost(rank);
    if (other_) other_->tell_lost(rank);
  }

 private:
  const bool is_debug_;
  const std::unique_ptr<Mesh> mesh_;
  const std::unique_ptr<Mesh> other_;  // of the messages; null: mesh_
  MeshMessages messages_;
};

}  // namespace

std::size_t Mesh::piece_bytes(std::size_t) const { return Exchange::kPieceBytes; }

Mesh::Started Mesh::recv_any(Slot, void*, std::size_t, ClaimSide) {
  throw BackendFailure(WorkerError::Kind::Unsupported, std::nullopt,
                       name() + " does not receive from any rank");
}

std::unique_ptr<Backend> make_mesh_backend(std::unique_ptr<Mesh> mesh, bool is_debug,
                                           std::unique_ptr<Mesh> messages) {
  return std::make_unique<MeshBackend>(std::move(mesh), is_debug, std::move(messages));
}

}  // namespace drun::worker
