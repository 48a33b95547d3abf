// edge. One nonblocking NCCL communicator and the stream for its operations.
//
//     connecting -> open <--> busy -> closed        (closed: by close(), permanently)
//                      any failure -> failed -> closed
//
// Blocks:  while a nonblocking communicator reports "in progress", it must not be used. A thread
//          that starts an operation therefore waits until this has ended, the deadline, close() or
//          a lost rank.
// Thread:  any. Operations run in the order in which they were started. close() can be called from
//          any thread, at any time after the CancelToken was raised, or while no operation is
//          running.
// Errors:  BackendFailure: Timeout; PeerLost for a rank reported lost, or a remote error of NCCL;
//          Broken if the CancelToken was raised; System with NCCL's text.
// Owner:   the backend; the CancelToken outlives it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "drun/backend.h"
#include "worker_lib/base/deadline.h"
#include "worker_lib/nccl/cancel.h"
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
                                               const nccl::UniqueId& id, RankInfo seat,
                                               const Awaited& awaited);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::shared_ptr<const Gpu>& gpu() const { return gpu_; }

  // Runs the work that `action` issues after `after` and all earlier work. Returns the event at its
  // end: the first of `after`, at least one, which thereby becomes empty.
  Event start(std::span<Event> after, const Awaited& awaited, const Action& action);
  // Waits for the event that start() returned.
  void wait(const Event& end, const Awaited& awaited);
  // Whether wait() would return or throw at once.
  bool would_return(const Event& end, const Awaited& awaited);
  // One call for each start() whose event was reached. close() aborts the operations that are left.
  void release() { --unfinished_; }

  // A collective: the ranks with the same color, which is not negative, get a new communicator, in
  // the order of their keys; the others get null. Requires can_split(). Returns when this
  // communicator can be used again.
  std::unique_ptr<Communicator> split(std::optional<int> color, int key, const Awaited& awaited);
  bool can_split() const { return api_.split != nullptr; }
  // Replaces the CancelToken. Call only while no operation is running.
  void use_cancel_token(CancelToken& stop) { stop_ = &stop; }

  // Aborts running operations; if there are none, waits until sent data has arrived. Returns within
  // seconds, even if a thread is stuck in an NCCL call; false: operations may still be running. The
  // second call has no effect.
  bool close() noexcept;

  // An exit handler, to be registered after NCCL was used: aborts the operations that are still
  // running, for which CUDA's own exit handler would wait forever. NCCL is not called afterwards.
  static void close_all_at_exit();

 private:
  Communicator(std::shared_ptr<const Gpu> gpu, CancelToken& stop);

  // Waits until comm_ is no longer in progress.
  void settle(nccl::Result said, const Awaited& awaited);
  void check_for_errors(const Awaited& awaited);
  void need_open() const;
  bool finalize(nccl::Comm comm) const noexcept;
  void abort_if_running() noexcept;
  // Throws if the operation is over without success. True: its event is reached.
  bool look(const Event& end, const Awaited& awaited);
  void check_lost(const Awaited& awaited) const;
  BackendFailure failure(nccl::Result result, const Awaited& awaited) const;
  template <typename Done>
  void look_until(const Awaited& awaited, Done&& is_done);

  const std::shared_ptr<const Gpu> gpu_;
  const nccl::Api& api_;
  CancelToken* stop_;
  const OwnStream stream_;
  std::timed_mutex using_;  // held while the communicator is in use
  std::atomic<nccl::Comm> comm_ = nullptr;
  // ncclCommSplit returns before a thread of NCCL stores the new communicator here, on ranks
  // without a key too (there null). That thread has ended when comm_ is no longer in progress, or
  // is gone.
  nccl::Comm child_ = nullptr;
  std::atomic<bool> has_failed_ = false;
  std::atomic<int> unfinished_ = 0;
  std::atomic<bool> is_closed_ = false;  // all its operations have ended
};

// A failure with NCCL's error text and number.
BackendFailure nccl_failure(nccl::Result result, nccl::Comm comm, const std::string& what);

}  // namespace drun::worker
