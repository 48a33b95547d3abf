#include "worker_lib/nccl/start_queue.h"

#include <chrono>
#include <string>
#include <utility>

#include "worker_lib/base/deadline.h"

namespace drun::worker {
namespace {

using Kind = WorkerError::Kind;

Deadline far_away() { return deadline_in(std::chrono::hours(24 * 365)); }

}  // namespace

void StartQueue::add(std::shared_ptr<Operation> operation) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(operation));
}

void StartQueue::issue(const Operation& own, std::optional<Deadline> deadline) {
  std::unique_lock lock(mutex_);
  if (is_issuing_) return;
  is_issuing_ = true;
  std::exception_ptr late;
  // Whether it blocks to issue the next one; a communicator of the own one shows a connection.
  const auto may_block = [&] {
    return !has_failed_ && (waiting_.front()->may_block_ || !own.issued_.communicator);
  };
  while (!waiting_.empty() && (own.state_ == State::Waiting || !may_block())) {
    const std::shared_ptr<Operation> next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    const bool has_time = deadline && own.state_ == State::Waiting;
    issue_one(*next, own, has_time ? *deadline : far_away(), late);
    lock.lock();
  }
  if (waiting_.empty()) {
    is_issuing_ = false;
  } else {
    stop_.change([this] { is_issuing_ = false; });
  }
}

void StartQueue::issue_one(Operation& operation, const Operation& own, Deadline deadline,
                           std::exception_ptr& late) {
  State state = State::Begun;
  try {
    if (late && &operation == &own) std::rethrow_exception(late);
    if (has_failed_) throw BackendFailure(Kind::Broken, "another operation has failed");
    operation.issued_ = operation.issue_(deadline);
    operation.begun_at_ = coarse_now();
  } catch (const BackendFailure& failure) {
    has_failed_ = true;
    operation.failure_ = std::current_exception();
    state = State::Failed;
    if (failure.kind == Kind::Timeout && &operation != &own) {
      late = std::exchange(operation.failure_, std::make_exception_ptr(BackendFailure(
                                                   Kind::Broken, "a later operation was late")));
    }
  } catch (...) {
    has_failed_ = true;
    operation.failure_ = std::current_exception();
    state = State::Failed;
  }
  operation.issue_ = nullptr;
  stop_.change([&] { operation.state_ = state; });
}

void StartQueue::await_start(Operation& operation, Deadline deadline) {
  while (operation.state_ == State::Waiting) {
    issue(operation, deadline);
    const auto may_go_on = [&] { return operation.state_ != State::Waiting || !is_issuing_; };
    if (operation.state_ == State::Waiting && !stop_.wait_until(deadline, may_go_on)) {
      stop_.check();
      throw BackendFailure(Kind::Timeout, operation.awaited_.peer,
                           "an earlier operation has not been started yet");
    }
  }
  check(operation);
}

void StartQueue::await_end(Operation& operation, Deadline deadline) {
  await_start(operation, deadline);
  if (!operation.issued_.end) return;
  Awaited awaited = operation.awaited_;
  awaited.deadline = deadline;
  awaited.since = operation.begun_at_;
  operation.issued_.communicator->wait(*operation.issued_.end, awaited);
  if (!operation.is_released_.exchange(true)) operation.issued_.communicator->release();
}

std::optional<bool> StartQueue::is_over(const Operation& operation) const {
  if (operation.state_ == State::Waiting) {
    const std::lock_guard lock(mutex_);
    if (operation.state_ == State::Waiting) {
      return is_issuing_ ? std::optional<bool>(false) : std::nullopt;
    }
  }
  if (operation.state_ == State::Failed || !operation.issued_.end) return true;
  Awaited awaited = operation.awaited_;
  awaited.since = operation.begun_at_;
  return operation.issued_.communicator->would_return(*operation.issued_.end, awaited);
}

void StartQueue::check(const Operation& operation) const {
  if (operation.state_ == State::Failed) std::rethrow_exception(operation.failure_);
}

void StartQueue::make_wait(Operation& operation, cuda::Stream stream) {
  await_start(operation, far_away());
  if (!operation.issued_.end) return;
  const Gpu& gpu = *operation.issued_.communicator->gpu();
  const Current current(gpu);
  if (is_capturing(&gpu.api(), stream)) {
    throw BackendFailure(Kind::Unsupported, "the stream is being captured into a CUDA graph");
  }
  operation.issued_.end->make_wait(stream);
}

}  // namespace drun::worker
