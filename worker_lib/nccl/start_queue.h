// edge. Starts the operations of one communicator in the order of their calls, and completes them.
//
// A thread that calls an operation adds it to the queue and starts what is queued, unless another
// thread is doing so: connecting takes long, and a call that is made meanwhile returns at once. An
// operation that is started is an event on the GPU. No thread belongs to it.
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
    // `issue` is called once at most, and destroyed afterwards.
    Operation(Issue issue, const Awaited& awaited) : issue_(std::move(issue)), awaited_(awaited) {}

   private:
    friend class StartQueue;
    enum class State { Waiting, Begun, Failed };

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
  // Issues everything that is queued, unless another thread is doing so. `last` is added before.
  void issue(Deadline deadline, std::shared_ptr<Operation> last = nullptr);
  // The same where the operations' own deadlines apply, which another thread watches.
  void issue();

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

  void issue_one(Operation& operation, Deadline deadline);

  CancelToken& stop_;
  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<Operation>> waiting_;
  bool is_issuing_ = false;
  bool has_failed_ = false;  // belongs to the thread that issues
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
