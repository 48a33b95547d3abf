// edge. One NCCL communicator and the stream for its operations.
//
//     connecting -> open <--> busy -> closed        (closed: by close(), permanently)
//                      any failure -> failed -> closed
//
// Kinds:   a nonblocking communicator connects, because that has a deadline. Operations use a
//          blocking one that is split from it: NCCL starts a thread for each operation of a
//          nonblocking one, which took 57 us instead of 23 us for 4 bytes (two processes on one
//          H200 with MPS, NCCL 2.28.3). NCCL before 2.18 cannot split.
// Blocks:  a thread inside a blocking call, such as a first one, for which NCCL connects to other
//          ranks, is released by an abort, at the deadline or when a rank is lost. While a
//          nonblocking communicator reports "in progress", it must not be used: the thread waits.
// Thread:  any. Operations run in the order in which they were started. close() can be called from
//          any thread, at any time after the CancelToken was raised, or while no operation is
//          running.
// Errors:  BackendFailure: Timeout; PeerLost for a rank reported lost, or a remote error of NCCL;
//          Broken if the CancelToken was raised; System with NCCL's text.
// Owner:   the backend; the CancelToken outlives it.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
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

  // Aborts running operations; if there are none, NCCL ends the communicator in the background.
  // Returns within seconds, even if a thread is stuck in an NCCL call; false: operations may still
  // be running. The second call has no effect.
  bool close() noexcept;

  // An exit handler, to be registered after NCCL was used: aborts the operations that are still
  // running, for which CUDA's own exit handler would wait forever. NCCL is not called afterwards.
  static void close_all_at_exit();

 private:
  friend class CallWatch;

  Communicator(std::shared_ptr<const Gpu> gpu, CancelToken& stop);

  // Calls `action`; throws what has ended the call.
  nccl::Result call(const Awaited& awaited, const Action& action);
  // Aborts the communicator if a thread is inside a call that must end. Returns whether one is
  // inside.
  bool end_late_call() noexcept;
  // Throws if what the thread waits for cannot come, or not in time.
  void check_wait(const Awaited& awaited) const;

  // Waits until comm_ is no longer in progress.
  void settle(nccl::Result said, const Awaited& awaited);
  void check_for_errors(const Awaited& awaited);
  void need_open() const;
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
  bool is_blocking_ = false;
  std::timed_mutex using_;  // held while the communicator is in use
  std::mutex call_mutex_;
  const Awaited* in_call_ = nullptr;     // of the thread that is inside a blocking call
  std::exception_ptr why_call_ended_{};  // before NCCL has returned
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
