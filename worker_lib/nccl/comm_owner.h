// edge. Owns an ncclComm_t, and ends it.
//
//     connecting -> open <--> busy -> closed        (closed: by close(), permanently)
//                      any failure -> failed -> closed
//
// Ends:    NCCL destroys an idle communicator in the background, which takes half a second, and
//          aborts any other.
// Calls:   a thread inside a blocking call, such as a first one, for which NCCL connects to other
//          ranks, is released by an abort when the call must end. A thread of the process checks
//          this while calls are made. An abort also frees what the call uses, so a call that has
//          just begun is not aborted: if it waits for nothing, it returns by itself.
// Exit:    close_all_at_exit() aborts the operations that are still running.
// Thread:  any. close() can be called at any time after the CancelToken was raised, or while no
//          operation is running.
// Errors:  BackendFailure: Broken once the CancelToken was raised.
// Owner:   the Communicator; the CancelToken outlives it.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

#include "worker_lib/base/deadline.h"
#include "worker_lib/nccl/abi.h"
#include "worker_lib/nccl/cancel.h"
#include "worker_lib/nccl/gpu.h"

namespace drun::worker {

class CommOwner {
 public:
  using Lock = std::unique_lock<std::timed_mutex>;
  // Throws if what a thread waits for cannot come, or not in time.
  using Check = std::function<void()>;

  CommOwner(std::shared_ptr<const Gpu> gpu, CancelToken& stop);
  ~CommOwner();
  CommOwner(const CommOwner&) = delete;
  CommOwner& operator=(const CommOwner&) = delete;

  const std::shared_ptr<const Gpu>& gpu() const { return gpu_; }
  CancelToken& stop() const { return *stop_; }
  // Replaces the CancelToken. Call only while no operation is running.
  void use_cancel_token(CancelToken& stop) { stop_ = &stop; }

  // --- Use

  // Held while the communicator is in use.
  Lock lock() { return Lock(using_); }
  // For a look at it: not locked if it is in use.
  Lock try_lock() { return Lock(using_, std::try_to_lock); }
  void need_open() const;
  void take(nccl::Comm comm) { comm_ = comm; }
  nccl::Comm get() const { return comm_; }
  // Where ncclCommSplit stores the new communicator: it returns before a thread of NCCL does, on
  // ranks without a key too (there null). That thread has ended when the communicator is no longer
  // in progress, or is gone.
  nccl::Comm& child() { return child_; }
  // Makes a call that may block. Throws what `check` has thrown if that has ended the call.
  nccl::Result call(const Check& check, const std::function<nccl::Result(nccl::Comm)>& action);

  // One of each for an operation. close() aborts those that are left.
  void note_start() { ++unfinished_; }
  void note_end() { --unfinished_; }
  // It is aborted at the end.
  void note_failure() { has_failed_ = true; }

  // --- Ends

  // Returns within seconds, even if a thread is stuck in an NCCL call; false: operations may still
  // be running. The second call has no effect.
  bool close() noexcept;
  // An exit handler, to be registered after NCCL was used: CUDA's own would wait forever for
  // running operations. NCCL is not called afterwards.
  static void close_all_at_exit();

  // For the thread that watches calls: aborts the communicator if a thread is inside a call that
  // must end. Returns whether one is inside.
  bool end_late_call() noexcept;

 private:
  bool abort(nccl::Comm comm) const noexcept;

  const std::shared_ptr<const Gpu> gpu_;
  const nccl::Api& api_;
  CancelToken* stop_;
  std::timed_mutex using_;
  std::mutex call_mutex_;
  const Check* in_call_ = nullptr;  // of the thread that is inside a blocking call
  Deadline::clock::time_point call_began_{};
  std::exception_ptr why_call_ended_{};  // before NCCL has returned
  std::atomic<nccl::Comm> comm_ = nullptr;
  nccl::Comm child_ = nullptr;
  std::atomic<bool> has_failed_ = false;
  std::atomic<int> unfinished_ = 0;
  std::atomic<bool> is_closed_ = false;  // all its operations have ended
};

}  // namespace drun::worker
