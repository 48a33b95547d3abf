#include "worker_lib/nccl/communicators.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "worker_lib/base/deadline.h"
#include "worker_lib/base/process.h"
#include "worker_lib/base/threads.h"
#include "worker_lib/mesh/gather_texts.h"
#include "worker_lib/nccl/library.h"

namespace drun::worker {
namespace {

using Kind = WorkerError::Kind;
using Milliseconds = std::chrono::milliseconds;

constexpr char kConnect[] = "connect the GPUs";

// The two variables with which NCCL accepts several ranks on one GPU.
bool may_share_gpu() {
  constexpr int kFirstVersion = 23003;
  const char* const host = std::getenv("NCCL_HOSTID");
  if (host != nullptr && *host != '\0') return true;
  const char* const several = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  int version = 0;
  return several != nullptr && std::atoi(several) != 0 &&
         need_nccl().get_version(&version) == nccl::kSuccess && version >= kFirstVersion;
}

}  // namespace

std::shared_ptr<const Gpu> Communicators::gpu(std::optional<int> number) {
  if (has_gpu_) return gpu_;
  const int count = gpu_count();
  const std::lock_guard lock(mutex_);
  if (gpu_) return gpu_;
  const int chosen = context_.device.value_or(number.value_or(context_.local_rank % count));
  if (chosen < 0 || chosen >= count) {
    throw BackendFailure(Kind::Usage, "there is no GPU " + std::to_string(chosen) +
                                          ": this process sees " + std::to_string(count));
  }
  gpu_ = std::make_shared<Gpu>(chosen);
  has_gpu_ = true;
  return gpu_;
}

const std::shared_ptr<const Gpu>& Communicators::known_gpu() const {
  static const std::shared_ptr<const Gpu> none;
  return has_gpu_ ? gpu_ : none;
}

std::shared_ptr<Communicator> Communicators::connect(const std::string& name, int first,
                                                     Communicator::RankInfo self,
                                                     const Awaited& awaited) {
  const std::string key = "nccl/" + name;
  need_nccl();
  const std::shared_ptr<const Gpu> at = gpu(std::nullopt);
  const std::string gpu_keys = "nccl/gpu/" + name + "/";
  if (context_.size > 1) reject_shared_gpu(*at, gpu_keys, awaited);
  const nccl::UniqueId id = self.rank == 0 ? make_id(key, self.size == 1, awaited.deadline)
                                           : read_id(key, first, awaited);
  std::shared_ptr<Communicator> communicator = Communicator::connect(at, stop_, id, self, awaited);
  // All ranks are connected, so they have read both.
  if (context_.size > 1) forget_key(context_, gpu_keys + std::to_string(context_.rank));
  if (self.rank == 0 && self.size > 1) forget_key(context_, key);
  static std::once_flag is_loaded;  // with all that NCCL loads when it connects
  std::call_once(is_loaded, [] {
    std::atexit(CommOwner::close_all_at_exit);
    renew_at_exit();  // ends the default group before that
  });
  return adopt(std::move(communicator));
}

std::shared_ptr<Communicator> Communicators::adopt(std::shared_ptr<Communicator> communicator) {
  const std::lock_guard lock(mutex_);
  stop_.check();
  if (!gpu_) gpu_ = communicator->gpu();
  has_gpu_ = true;
  communicator->use_cancel_token(stop_);
  all_.push_back(communicator);
  return communicator;
}

bool Communicators::close() noexcept {
  stop_.raise();
  std::vector<std::shared_ptr<Communicator>> all;
  {
    const std::lock_guard lock(mutex_);
    all = all_;
  }
  bool is_closed = true;
  for (const std::shared_ptr<Communicator>& communicator : all)
    is_closed = communicator->close() && is_closed;
  return is_closed;
}

nccl::UniqueId Communicators::make_id(const std::string& key, bool is_alone, Deadline deadline) {
  nccl::UniqueId id;
  const nccl::Result result = need_nccl().get_unique_id(&id);
  if (result != nccl::kSuccess) throw nccl_failure(result, nullptr, "ncclGetUniqueId");
  if (is_alone) return id;
  const std::string bytes(id.bytes, sizeof id.bytes);
  context_.store->set(key, nccl_version() + "\n" + bytes, left_until(deadline));
  return id;
}

nccl::UniqueId Communicators::read_id(const std::string& key, int first, const Awaited& awaited) {
  const std::string value = read(key, first, awaited, kConnect);
  const std::size_t end = std::min(value.find('\n'), value.size());
  const std::string version = value.substr(0, end);
  nccl::UniqueId id;
  if (value.size() != end + 1 + sizeof id.bytes) {
    throw BackendFailure(Kind::Store, first, "the store's key " + key + " is not an id of NCCL's");
  }
  if (version != nccl_version()) {
    throw BackendFailure(Kind::Mismatch, first,
                         "rank " + std::to_string(first) + " has NCCL " + version + ", this rank " +
                             nccl_version() + "; install the same on all nodes");
  }
  std::memcpy(id.bytes, value.data() + end + 1, sizeof id.bytes);
  return id;
}

// Uses short waits, so that it reacts to an abort. A rank that has ended may have written the key
// before, so the key is looked up once more after its end.
std::string Communicators::read(const std::string& key, int from, const Awaited& awaited,
                                const char* purpose) {
  constexpr Milliseconds kBetweenLooks{200};
  while (true) {
    stop_.check();
    const std::optional<int> lost = stop_.lost_rank(awaited.peer, Milliseconds(0));
    try {
      return context_.store->get(key, std::min(left_until(awaited.deadline), kBetweenLooks));
    } catch (const WorkerError& error) {
      if (lost) {
        throw BackendFailure(
            Kind::PeerLost, lost,
            "lost rank " + std::to_string(*lost) + " before it came to " + purpose);
      }
      if (error.kind() != Kind::Timeout) throw;
      if (std::chrono::steady_clock::now() < awaited.deadline) continue;
      throw BackendFailure(Kind::Timeout, from,
                           "rank " + std::to_string(from) + " did not come in time to " + purpose);
    }
  }
}

// Every rank publishes its GPU, also one that may share it, because others may wait for the key.
void Communicators::reject_shared_gpu(const Gpu& gpu, const std::string& keys,
                                      const Awaited& awaited) {
  const auto key = [&](int rank) { return keys + std::to_string(rank); };
  const std::string own = gpu.pci_bus_id();
  context_.store->set(key(context_.rank), own, left_until(awaited.deadline));
  if (may_share_gpu()) return;
  const auto node_of = [&](int rank) { return context_.node_of[static_cast<std::size_t>(rank)]; };
  for (int rank = 0; rank < context_.size; ++rank) {
    const bool is_compared = rank != context_.rank && (!awaited.peer || *awaited.peer == rank) &&
                             node_of(rank) == node_of(context_.rank);
    if (!is_compared || read(key(rank), rank, awaited, kConnect) != own) continue;
    const auto [low, high] = std::minmax(rank, context_.rank);
    throw BackendFailure(
        Kind::Usage, rank,
        "ranks " + std::to_string(low) + " and " + std::to_string(high) + " use the same GPU, " +
            own + ", which NCCL " + nccl_version() +
            " rejects; give each rank a GPU, or set NCCL_MULTI_RANK_GPU_ENABLE=1 (NCCL 2.30.3 or "
            "later) or a different NCCL_HOSTID for each rank");
  }
}

}  // namespace drun::worker
