#include "worker_lib/errand.h"

#include <utility>

namespace drun::worker {

void Errand::run() {
  std::unique_lock lock(mutex_);
  if (state_ == State::Open) perform(lock);
}

void Errand::wait() {
  std::unique_lock lock(mutex_);
  if (state_ == State::Open && would_end_) return perform(lock);
  done_.wait(lock, [this] { return state_ == State::Done; });
}

bool Errand::wait_for(std::chrono::milliseconds time) {
  if (is_done()) return true;
  std::unique_lock lock(mutex_);
  return done_.wait_for(lock, time, [this] { return state_ == State::Done; });
}

bool Errand::is_open() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::Open;
}

bool Errand::is_done() {
  std::unique_lock lock(mutex_);
  if (state_ == State::Open && would_end_ && would_end_()) perform(lock);
  return state_ == State::Done;
}

int Errand::get() const {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  return result_;
}

void Errand::perform(std::unique_lock<std::mutex>& lock) {
  state_ = State::Begun;
  Deed deed = std::exchange(deed_, nullptr);
  would_end_ = nullptr;
  lock.unlock();
  keep_end_of(deed);
  deed = nullptr;
  lock.lock();
  state_ = State::Done;
  done_.notify_all();
}

}  // namespace drun::worker
