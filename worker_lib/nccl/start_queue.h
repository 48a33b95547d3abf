// edge. Starts the operations of one communicator in the order of their calls, and completes them.
//
// A thread that calls an operation adds it to the queue and starts what is queued, unless another
// thread is doing so: connecting takes long, and a call that is made meanwhile returns at once. An
// operation that is started is an event on the GPU. No thread belongs to it.
//
// A thread keeps the deadline of the operation that it is in. It therefore leaves later operations
// that can wait for other ranks to other threads. If the deadline passes while it starts an earlier
// operation, the thread's operation is a Timeout, and the earlier one is Broken.
//
//     waiting --issued--> begun --its event is reached--> done
//                |           any failure --> failed
//
// Thread:  any.
// Errors:  those of Communicator. After a failure no operation of the queue is started (Broken).
#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "worker_lib/nccl/communicator.h"

namespace drun::worker {

class StartQueue {
 public:
  struct Issued {
    std::shared_ptr<Communicator> communicator = nullptr;
    std::optional<Event> end = std::nullopt;  // absent: already done
  };
  // Issues the operation, and returns without waiting for its end. May block until the deadline.
  using Issue = std::function<Issued(Deadline deadline)>;

  class Operation {
   public:
    // `issue` is called once at most, and destroyed afterwards. `may_block`: it can wait for other
    // ranks even if they are connected.
    Operation(Issue issue, const Awaited& awaited, bool may_block)
        : may_block_(may_block), issue_(std::move(issue)), awaited_(awaited) {}

   private:
    friend class StartQueue;
    enum class State { Waiting, Begun, Failed };

    const bool may_block_;
    Issue issue_;
    const Awaited awaited_;
    std::atomic<State> state_ = State::Waiting;  // set with CancelToken::change()
    Issued issued_;                              // of a begun operation
    Deadline begun_at_{};
    std::exception_ptr failure_;
    std::atomic<bool> is_released_ = false;
  };

  explicit StartQueue(CancelToken& stop) : stop_(stop) {}

  void add(std::shared_ptr<Operation> operation);
  // Issues what is queued up to this operation, and what does not block after it, unless another
  // thread is doing so. Without a deadline, another thread watches it.
  void issue(const Operation& own, std::optional<Deadline> deadline = std::nullopt);

  // Waits until it has been issued, and issues it if no other thread does. Throws its failure.
  void await_start(Operation& operation, Deadline deadline);
  // Waits for its end.
  void await_end(Operation& operation, Deadline deadline);
  // Whether await_end would return or throw at once. Absent: only await_end will issue it.
  std::optional<bool> is_over(const Operation& operation) const;
  // Throws the failure if it could not be issued.
  void check(const Operation& operation) const;
  // Makes the stream wait for its end.
  void make_wait(Operation& operation, cuda::Stream stream);

 private:
  using State = Operation::State;

  // `own`: of the thread. `late`: why an earlier one of this thread was not done in time.
  void issue_one(Operation& operation, const Operation& own, Deadline deadline,
                 std::exception_ptr& late);

  CancelToken& stop_;
  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<Operation>> waiting_;
  std::atomic<bool> is_issuing_ = false;  // set with mutex_, reset also with CancelToken::change()
  bool has_failed_ = false;               // belongs to the thread that issues
};

// An operation as the group sees it. Several can share one, such as the messages of a batch.
class StartedTransfer final : public Transfer {
 public:
  // `peer`: the result of finish.
  StartedTransfer(StartQueue& queue, std::shared_ptr<StartQueue::Operation> operation, int peer = 0)
      : queue_(queue), operation_(std::move(operation)), peer_(peer) {}

  int finish(Deadline deadline) override {
    queue_.await_end(*operation_, deadline);
    return peer_;
  }
  std::optional<bool> is_done() override { return queue_.is_over(*operation_); }
  bool wait_on(void* stream) override {
    queue_.make_wait(*operation_, static_cast<cuda::Stream>(stream));
    return true;
  }

 private:
  StartQueue& queue_;
  const std::shared_ptr<StartQueue::Operation> operation_;
  const int peer_;
};

}  // namespace drun::worker
