// edge. The GPU and the communicators of one group on one rank.
//
// Store:   rank 0 of a communicator publishes its id and its NCCL version in the group's store, and
//          every rank its GPU, until they are connected.
// Thread:  any.
// Owner:   the backend. Communicators can be used until close(); afterwards no new ones are
//          created.
// Errors:  BackendFailure, and the store's WorkerError: Timeout with the missing ranks; Mismatch
//          for different versions of NCCL; Usage for ranks of one node that share a GPU without
//          permission; Unsupported without NCCL or GPU; and those of Communicator.
#pragma once

#include <atomic>
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

  // The first call selects the GPU: InitOptions::device, `number`, or else the number of this rank
  // on its node. Throws Usage if there is no such GPU.
  std::shared_ptr<const Gpu> gpu(std::optional<int> number);
  // Null if not selected yet.
  const std::shared_ptr<const Gpu>& known_gpu() const;

  // Connects the ranks that pass the same name. `first`: the rank in the group of the
  // communicator's rank 0.
  std::shared_ptr<Communicator> connect(const std::string& name, int first,
                                        Communicator::RankInfo self, const Awaited& awaited);
  // Waits for a value that rank `from` puts into the group's store to do something together: a
  // lost rank and a missed deadline are errors that name it.
  std::string read(const std::string& key, int from, const Awaited& awaited, const char* purpose);
  // Takes a communicator that was connected elsewhere.
  std::shared_ptr<Communicator> adopt(std::shared_ptr<Communicator> communicator);

  // False: operations may still be running.
  bool close() noexcept;

 private:
  nccl::UniqueId make_id(const std::string& key, bool is_alone, Deadline deadline);
  nccl::UniqueId read_id(const std::string& key, int first, const Awaited& awaited);
  // Compares the GPUs of the ranks to connect, as NCCL does, but before it waits for all of them.
  // `keys`: the beginning of the keys under which they publish them.
  void reject_shared_gpu(const Gpu& gpu, const std::string& keys, const Awaited& awaited);

  const BackendContext context_;
  CancelToken stop_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Gpu> gpu_;     // set once
  std::atomic<bool> has_gpu_ = false;  // read for each operation, without mutex_
  std::vector<std::shared_ptr<Communicator>> all_;
};

}  // namespace drun::worker
