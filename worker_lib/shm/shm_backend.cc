#include "worker_lib/shm/shm_backend.h"

#include <algorithm>
#include <string>
#include <utility>

#include "worker_lib/shm/collectives.h"
#include "worker_lib/shm/messages.h"

namespace drun::worker {
namespace shm {
namespace {

class ShmBackend final : public Backend, public SharesReceives {
 public:
  explicit ShmBackend(Parts parts)
      : spin_(spin_policy_for(parts.segment.size(), parts.cores)),
        lifelines_(std::move(parts.lifelines)),
        abort_flag_(parts.segment, parts.rank),
        regions_(std::move(parts.regions), parts.rank),
        peers_(parts.segment, parts.rank, parts.reads_peers),
        collectives_(parts.segment, parts.rank, spin_, abort_flag_, regions_, peers_),
        messages_(parts.segment, parts.rank, spin_, abort_flag_, peers_) {}

  std::string name() const override { return "shm"; }

  std::string refusal(const Call& call) const override {
    return call.gpu ? "shm works on memory of the host, not of a GPU" : "";
  }

  void run(const Call& call, const Turn& turn) override {
    abort_flag_.check();
    collectives_.run(call, turn);
  }
  std::shared_ptr<void> alloc_shared(std::size_t size_bytes, const Turn& turn) override {
    abort_flag_.check();
    return collectives_.alloc(size_bytes, turn);
  }

  std::unique_ptr<Transfer> start_send(const ConstElements& data, int to, int tag) override {
    return messages_.start_send(data, to, tag);
  }
  std::unique_ptr<Transfer> start_recv(const Elements& data, std::optional<int> from,
                                       int tag) override {
    return messages_.start_recv(data, from, tag);
  }
  std::unique_ptr<Transfer> start_recv_any(const Elements& data, int tag,
                                           ClaimSide claim) override {
    return messages_.start_recv(data, std::nullopt, tag, claim);
  }

  bool tell_lost(int rank) noexcept override {
    abort_flag_.tell_lost(rank);
    return true;
  }
  void abort() noexcept override { abort_flag_.raise(); }
  std::vector<Lifeline> lifelines() const override { return lifelines_.lines; }

 private:
  const SpinPolicy spin_;
  const Lifelines lifelines_;
  AbortFlag abort_flag_;
  Regions regions_;
  PeerMemory peers_;
  Collectives collectives_;
  Messages messages_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(Parts parts) {
  return std::make_unique<ShmBackend>(std::move(parts));
}

Parts connect_parts(const BackendContext& context) {
  const std::vector<int>& nodes = context.node_of;
  if (std::any_of(nodes.begin(), nodes.end(), [&](int node) { return node != nodes.front(); })) {
    throw BackendFailure(WorkerError::Kind::Unsupported,
                         "shm is for ranks of one node; choose shm+tcp or tcp");
  }
  Connection connection = connect_ranks(context, Segment::bytes_for(context.size));
  return {.rank = context.rank,
          .segment = Segment(connection.segment.get(), context.size),
          .regions = std::move(connection.regions),
          .lifelines = std::move(connection.lifelines),
          .cores = connection.cores};
}

}  // namespace shm

std::unique_ptr<Backend> connect_shm(const BackendContext& context) {
  return shm::make_backend(shm::connect_parts(context));
}

}  // namespace drun::worker
