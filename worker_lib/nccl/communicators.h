// edge. The GPU and the communicators of one group on one rank.
//
// Key:     rank 0 of a communicator publishes its id and its NCCL's version in the group's store.
// Thread:  any.
// Owner:   the backend. Communicators may be used until close(), after which there are no new ones.
// Errors:  BackendFailure, and the store's WorkerError: Timeout, naming who did not come; Mismatch
//          for another version of NCCL; Unsupported without library or GPU; Communicator's.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "drun/backend.h"
#include "worker_lib/nccl/communicator.h"

namespace drun::worker {

class Communicators {
 public:
  explicit Communicators(const BackendContext& context) : context_(context) {}

  const BackendContext& context() const { return context_; }
  CancelToken& stop() { return stop_; }

  // The first call decides which: `number`, else as many as this rank has on its node before it.
  std::shared_ptr<const Gpu> gpu(std::optional<int> number);
  // Null: not decided yet.
  std::shared_ptr<const Gpu> known_gpu() const;

  // Connects the ranks that give the same name; `first` is the group's number of its rank 0.
  std::shared_ptr<Communicator> connect(const std::string& name, int first,
                                        Communicator::RankInfo seat, const Awaited& awaited);
  // One that was connected elsewhere.
  std::shared_ptr<Communicator> adopt(std::shared_ptr<Communicator> line);

  void close() noexcept;

 private:
  nccl::UniqueId make_id(const std::string& key, bool is_alone, Deadline deadline);
  nccl::UniqueId read_id(const std::string& key, int first, const Awaited& awaited);

  const BackendContext context_;
  CancelToken stop_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Gpu> gpu_;
  std::vector<std::shared_ptr<Communicator>> lines_;
};

}  // namespace drun::worker
