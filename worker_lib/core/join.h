// edge. Connects this rank to the others: finds its rank, the store and the nodes, and connects the
// backend. The result is what a group is made of.
//
// Blocks:  until all ranks are connected, or the timeout of `options`.
// Errors:  as init_process_group.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "drun/backend.h"
#include "drun/process_group.h"
#include "rendezvous/job/world.h"
#include "worker_lib/core/backends.h"
#include "worker_lib/core/requests.h"
#include "worker_lib/core/watch.h"
#include "worker_lib/start/processes.h"

namespace drun::worker {

// Shared by all groups that originate from one connect.
struct Job {
  WorkerIdentity self;
  std::chrono::milliseconds timeout{0};  // default of calls
  BackendChoice backend;
  std::optional<int> device = std::nullopt;
  std::string address = "";  // this rank's
  bool is_debug = false;
  bool rank0_hosts_store = false;
  std::shared_ptr<void> hosted_store = nullptr;  // only kept alive
  std::atomic<std::uint32_t> groups = 0;         // created in this process, without the first
  PeerProcesses processes = {};
  Watch watch;
  Progress progress;
};

struct GroupParts {
  std::shared_ptr<Job> job;
  int rank = 0;
  int size = 1;
  std::vector<int> node_of = {0};
  std::vector<int> world_ranks = {0};  // of this group's ranks
  std::uint32_t label = 0;  // identifies a group of this process to observers; 0: the first
  std::shared_ptr<KeyStore> store = nullptr;  // with this group's prefix; null in a world of one
  std::unique_ptr<Backend> backend = nullptr;
};

// These ranks of the group as a new group, in this order. This process is one of them. The store
// and the backend are missing.
GroupParts part_of(const GroupParts& group, const std::vector<int>& ranks, std::uint32_t label);

// The context of a backend of the group. Its store is a part of the group's.
BackendContext context_of(const GroupParts& parts, Deadline deadline);

// Connects the backend of a group with these parts. `split_off` and `ended_rank`: from the parent
// group. Throws BackendFailure or WorkerError.
using EndedRank = decltype(BackendContext::ended_rank);
std::unique_ptr<Backend> connect_backend(const GroupParts& parts, Deadline deadline,
                                         std::shared_ptr<void> split_off = nullptr,
                                         EndedRank ended_rank = nullptr);

GroupParts join(const InitOptions& options);

}  // namespace drun::worker
