// edge. What is behind ProcessGroup: checks arguments, runs collectives in order on one thread,
// keeps their deadlines, and turns the first failure into everybody's.
//
//     healthy --any failure--> broken        (for good; first_cause_ says why)
//
// Failing: 1. the cause is put into the store, unless another rank's is there already: the first
//          wins, everybody repeats it; 2. the backend is aborted, which wakes this rank's other
//          threads and is seen by the neighbours, who do the same. Who sees a connection close
//          first waits kGraceTime for the other side's explanation; the store has kReportTime to
//          answer.
// Destroy: executor, backend (pairs, then device), store, hosted store: in this order.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "drun/process_group.h"
#include "rendezvous/world.h"
#include "worker_lib/backend.h"
#include "worker_lib/cause.h"
#include "worker_lib/executor.h"

namespace drun {
namespace worker {

struct GroupParts {
  WorkerIdentity self;
  std::chrono::milliseconds timeout{0};
  std::shared_ptr<void> hosted_store = nullptr;  // kept alive only
  std::shared_ptr<KeyStore> store = nullptr;     // with this group's prefix; none in a world of one
  std::unique_ptr<Backend> backend = nullptr;
};

}  // namespace worker

class ProcessGroup::Group {
 public:
  using Timeout = ProcessGroup::Timeout;

  explicit Group(worker::GroupParts parts) : parts_(std::move(parts)) {}

  const WorkerIdentity& self() const { return parts_.self; }

  void all_reduce(Elements data, ReduceOp op, Timeout timeout);
  void broadcast(Elements data, int root, Timeout timeout);
  void barrier(Timeout timeout);
  void send(ConstElements data, int to, int tag, Timeout timeout);
  void recv(Elements data, int from, int tag, Timeout timeout);

 private:
  using Work = std::function<void(std::uint32_t sequence, worker::Deadline deadline)>;

  // Agrees on the call, then does `work` (nothing to do: empty).
  void collective(const worker::Call& call, Timeout timeout, Work work);
  void point_to_point(const std::string& operation, int peer, int tag, Timeout timeout,
                      const std::function<void(worker::Deadline)>& work);

  void check_elements(const std::string& operation, const void* data, std::size_t count,
                      DataType type) const;
  void check_rank(const std::string& operation, const char* what, int rank) const;
  std::chrono::milliseconds time_for(const std::string& operation, Timeout timeout) const;
  WorkerError usage(const std::string& operation, const std::string& message) const;
  // Throws Broken if the group is.
  void check_healthy(const std::string& operation);

  // Breaks the group if it is not broken yet; returns what to throw.
  WorkerError fail(const std::string& operation, const worker::BackendFailure& failure);
  worker::Cause publish(const worker::Cause& cause);

  worker::GroupParts parts_;
  std::mutex submitting_;  // numbers are given in the order of the executor's queue
  std::uint32_t sequence_ = 1;
  std::mutex failing_;
  std::condition_variable failed_;  // first_cause_ is there
  std::optional<worker::Cause> first_cause_;
  worker::Executor executor_;  // last: gone before what its tasks use
};

}  // namespace drun
