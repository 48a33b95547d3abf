#include "worker_lib/nccl/communicators.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "worker_lib/base/deadline.h"
#include "worker_lib/nccl/library.h"

namespace drun::worker {
namespace {

using Kind = WorkerError::Kind;
using Milliseconds = std::chrono::milliseconds;

}  // namespace

std::shared_ptr<const Gpu> Communicators::gpu(std::optional<int> number) {
  const int count = gpu_count();
  const std::lock_guard lock(mutex_);
  if (!gpu_) gpu_ = std::make_shared<Gpu>(number.value_or(context_.local_rank % count));
  return gpu_;
}

std::shared_ptr<const Gpu> Communicators::known_gpu() const {
  const std::lock_guard lock(mutex_);
  return gpu_;
}

std::shared_ptr<Communicator> Communicators::connect(const std::string& name, int first,
                                                     Communicator::RankInfo seat,
                                                     const Awaited& awaited) {
  const std::string key = "nccl/" + name;
  need_nccl();
  const std::shared_ptr<const Gpu> at = gpu(std::nullopt);
  const nccl::UniqueId id = seat.rank == 0 ? make_id(key, seat.size == 1, awaited.deadline)
                                           : read_id(key, first, awaited);
  return adopt(Communicator::connect(at, stop_, id, seat, awaited));
}

std::shared_ptr<Communicator> Communicators::adopt(std::shared_ptr<Communicator> line) {
  const std::lock_guard lock(mutex_);
  if (stop_.is_raised()) throw BackendFailure(Kind::Broken, std::nullopt, "aborted");
  if (!gpu_) gpu_ = line->gpu();
  line->use_cancel_token(stop_);
  lines_.push_back(line);
  return line;
}

void Communicators::close() noexcept {
  stop_.raise();
  std::vector<std::shared_ptr<Communicator>> lines;
  {
    const std::lock_guard lock(mutex_);
    lines = lines_;
  }
  for (const std::shared_ptr<Communicator>& line : lines) line->close();
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

// Uses short waits, so that it reacts to an abort.
nccl::UniqueId Communicators::read_id(const std::string& key, int first, const Awaited& awaited) {
  constexpr Milliseconds kBetweenLooks{200};
  std::string value;
  while (value.empty()) {
    if (stop_.is_raised()) throw BackendFailure(Kind::Broken, std::nullopt, "aborted");
    if (const std::optional<int> lost = stop_.lost_rank(awaited.peer, Milliseconds(0))) {
      throw BackendFailure(Kind::PeerLost, lost,
                           "the process of rank " + std::to_string(*lost) +
                               " has ended before the GPUs were connected",
                           true);
    }
    try {
      value = context_.store->get(key, std::min(left_until(awaited.deadline), kBetweenLooks));
    } catch (const WorkerError& error) {
      if (error.kind() != Kind::Timeout) throw;
      if (std::chrono::steady_clock::now() < awaited.deadline) continue;
      throw BackendFailure(
          Kind::Timeout, first,
          "rank " + std::to_string(first) + " did not come in time to connect the GPUs");
    }
  }
  const std::size_t line = std::min(value.find('\n'), value.size());
  const std::string version = value.substr(0, line);
  nccl::UniqueId id;
  if (value.size() != line + 1 + sizeof id.bytes) {
    throw BackendFailure(Kind::Store, first, "the store's key " + key + " is not an id of NCCL's");
  }
  if (version != nccl_version()) {
    throw BackendFailure(Kind::Mismatch, first,
                         "rank " + std::to_string(first) + " has NCCL " + version + ", this rank " +
                             nccl_version() + "; install the same on all nodes");
  }
  std::memcpy(id.bytes, value.data() + line + 1, sizeof id.bytes);
  return id;
}

}  // namespace drun::worker
