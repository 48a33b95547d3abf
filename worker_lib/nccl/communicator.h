// edge. One NCCL communicator and the stream for its operations.
//
// Kinds:   a nonblocking communicator connects, because that has a deadline. Operations use a
//          blocking one that is split from it: NCCL starts a thread for each operation of a
//          nonblocking one, which took 57 us instead of 23 us for 4 bytes (two processes on one
//          H200 with MPS, NCCL 2.28.3). NCCL before 2.18 cannot split.
// Waits:   neither NCCL nor a GPU event can be waited for with a deadline, so both are polled. A
//          waiting thread first polls continuously, since most operations take microseconds, and
//          then sleeps for growing intervals of up to a millisecond, unless the CancelToken wakes
//          it. While a nonblocking communicator reports "in progress", it must not be used: the
//          thread waits.
// Thread:  any. Operations run in the order in which they were started.
// Errors:  BackendFailure: Timeout; PeerLost for a rank reported lost, or a remote error of NCCL;
//          Broken if the CancelToken was raised; System with NCCL's text.
// Owner:   the backend; the CancelToken outlives it. comm_owner.h describes its end.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "drun/backend.h"
#include "worker_lib/base/deadline.h"
#include "worker_lib/nccl/cancel.h"
#include "worker_lib/nccl/comm_owner.h"
#include "worker_lib/nccl/gpu.h"

namespace drun::worker {

// The operation that a wait is for, and its deadline.
struct Awaited {
  std::uint32_t sequence = 0;              // of a collective; 0: other
  std::optional<int> peer = std::nullopt;  // absent: any rank of the group matters
  const char* what = "connecting";         // if neither is set
  Deadline deadline{};
  Deadline since = coarse_now();
};

class Communicator {
 public:
  struct RankInfo {
    int rank = 0;
    int size = 1;
  };
  // Issues operations and returns NCCL's result.
  using Action = std::function<nccl::Result(nccl::Comm comm, cuda::Stream stream)>;

  // Connects to the other ranks that have the same id.
  static std::unique_ptr<Communicator> connect(std::shared_ptr<const Gpu> gpu, CancelToken& stop,
                                               const nccl::UniqueId& id, RankInfo self,
                                               const Awaited& awaited);

  const std::shared_ptr<const Gpu>& gpu() const { return owner_.gpu(); }
  void use_cancel_token(CancelToken& stop) { owner_.use_cancel_token(stop); }

  // Runs the work that `action` issues after `after` and all earlier work. Returns the event at its
  // end: the first of `after`, at least one, which thereby becomes empty.
  Event start(std::span<Event> after, const Awaited& awaited, const Action& action);
  // Waits for the event that start() returned.
  void wait(const Event& end, const Awaited& awaited);
  // Whether wait() would return or throw at once.
  bool would_return(const Event& end, const Awaited& awaited);
  // One call for each start() whose event was reached. close() aborts the operations that are left.
  void release() { owner_.note_end(); }

  // A collective: the ranks with the same color, which is not negative, get a new communicator, in
  // the order of their keys; the others get null. Requires can_split(). Returns when this
  // communicator can be used again.
  std::unique_ptr<Communicator> split(std::optional<int> color, int key, const Awaited& awaited);
  bool can_split() const { return api_.split != nullptr; }

  bool close() noexcept { return owner_.close(); }

 private:
  Communicator(std::shared_ptr<const Gpu> gpu, CancelToken& stop);

  nccl::Result call(const Awaited& awaited, const Action& action);
  // Throws if what the thread waits for cannot come, or not in time.
  void check_wait(const Awaited& awaited) const;
  void check_lost(const Awaited& awaited) const;
  // Waits until the communicator is no longer in progress.
  void settle(nccl::Result result, const Awaited& awaited);
  // The state of the communicator.
  nccl::Result state() const;
  void check_for_errors(const Awaited& awaited);
  // Throws if the operation is over without success. True: its event is reached.
  bool look(const Event& end, const Awaited& awaited);
  BackendFailure failure(nccl::Result result, const Awaited& awaited) const;
  template <typename Done>
  void look_until(const Awaited& awaited, Done&& is_done);

  const nccl::Api& api_;
  const OwnStream stream_;
  bool is_blocking_ = false;
  CommOwner owner_;  // ends before the stream does
};

// A failure with NCCL's error text and number.
BackendFailure nccl_failure(nccl::Result result, nccl::Comm comm, const std::string& what);

}  // namespace drun::worker
