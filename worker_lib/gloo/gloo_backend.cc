#include "worker_lib/gloo/gloo_backend.h"

#include <vector>

#include "worker_lib/algorithms/collectives.h"
#include "worker_lib/algorithms/debug_check.h"
#include "worker_lib/algorithms/exchange.h"
#include "worker_lib/algorithms/message_tags.h"
#include "worker_lib/base/signature.h"
#include "worker_lib/gloo/gloo_mesh.h"
#include "worker_lib/gloo/gloo_messages.h"

namespace drun::worker {
namespace {

// Every message is known by what it belongs to and its size, so Gloo never gives one to a receiver
// that expects another.
class GlooExchange final : public Exchange {
 public:
  GlooExchange(GlooMesh& mesh, Traffic traffic, std::uint64_t hash, Deadline deadline)
      : Exchange(mesh.rank(), mesh.size()),
        mesh_(mesh),
        traffic_(traffic),
        hash_(hash),
        deadline_(deadline) {}

 private:
  Handle start_send(int to, const void* data, std::size_t size_bytes) override {
    return started([&] { return mesh_.send(to, slot_for(size_bytes), data, size_bytes); });
  }
  Handle start_recv(int from, void* data, std::size_t size_bytes) override {
    return started([&] { return mesh_.recv(from, slot_for(size_bytes), data, size_bytes); });
  }
  void finish(Handle handle) override {
    stopping_all([&] { messages_[handle].wait(deadline_); });
  }

  std::uint64_t slot_for(std::size_t size_bytes) const {
    return make_slot(traffic_, mix(hash_, size_bytes));
  }
  template <typename Start>
  Handle started(Start&& start) {
    stopping_all([&] { messages_.push_back(start()); });
    return messages_.size() - 1;
  }
  template <typename Deed>
  void stopping_all(Deed&& deed) {
    try {
      deed();
    } catch (...) {
      messages_.clear();  // before the algorithm's memory is gone
      throw;
    }
  }

  GlooMesh& mesh_;
  Traffic traffic_;
  std::uint64_t hash_;
  Deadline deadline_;
  std::vector<GlooMesh::Message> messages_;
};

class GlooBackend final : public Backend {
 public:
  explicit GlooBackend(const BackendContext& context)
      : is_debug_(context.is_debug), mesh_(context), messages_(mesh_) {}

  std::string name() const override { return "gloo"; }
  std::string refusal(const Call& call) const override {
    return call.gpu ? "gloo works on memory of the host, not of a GPU" : "";
  }

  void run(const Call& call, const Turn& turn) override {
    if (is_debug_) {
      GlooExchange meeting(mesh_, Traffic::Agreement, turn.sequence, turn.deadline);
      agree(meeting, call, turn.sequence);
      if (call.operation == Operation::Barrier) return;
      compare_counts(meeting, call, turn.sequence);
    }
    const std::uint64_t hash = mix(turn.sequence, signature_of(call, mesh_.size()));
    GlooExchange exchange(mesh_, Traffic::Collective, hash, turn.deadline);
    run_collective(exchange, call);
  }

  std::unique_ptr<Transfer> start_send(const ConstElements& data, int to, int tag) override {
    return messages_.start_send(data, to, tag);
  }
  std::unique_ptr<Transfer> start_recv(const Elements& data, std::optional<int> from,
                                       int tag) override {
    return messages_.start_recv(data, from, tag);
  }

  void abort() noexcept override { mesh_.abort(); }
  bool keeps_deadlines() const override { return false; }
  std::vector<Lifeline> lifelines() const override { return mesh_.lifelines(); }
  void tell_lost(int rank) noexcept override { mesh_.tell_lost(rank); }

 private:
  const bool is_debug_;
  GlooMesh mesh_;
  GlooMessages messages_;
};

}  // namespace

std::unique_ptr<Backend> connect_gloo(const BackendContext& context) {
  return std::make_unique<GlooBackend>(context);
}

}  // namespace drun::worker
