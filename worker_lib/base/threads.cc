#include "worker_lib/base/threads.h"

#include <string>
#include <system_error>
#include <utility>

#include "drun/backend.h"
#include "worker_lib/base/process.h"

namespace drun::worker {

std::thread start_thread(std::function<void()> body) {
  const SignalsBlocked blocked;  // inherited by the thread
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    throw BackendFailure(
        WorkerError::Kind::System,
        "cannot start a thread: " + error.code().message() +
            "; raise the limit on processes (ulimit -u, or the cgroup's pids.max)");
  }
}

void Threads::start() {
  if (has_started_) return;
  const std::lock_guard lock(mutex_);
  if (threads_.empty()) start_one();
  has_started_ = true;
}

void Threads::submit(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  if (idle_ == 0) add_thread();  // if that fails, the first one that is free takes it
  enqueue(std::move(task));
}

void Threads::let_others_run() {
  const std::lock_guard lock(mutex_);
  if (idle_ == 0 && !tasks_.empty()) add_thread();
}

bool Threads::try_submit(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  if (idle_ <= tasks_.size() && !add_thread()) return false;
  enqueue(std::move(task));
  return true;
}

void Threads::enqueue(std::function<void()> task) {
  tasks_.push_back(std::move(task));
  wake_.notify_one();
}

void Threads::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  for (std::thread& thread : ended_) thread.join();
  threads_.clear();
  ended_.clear();
}

bool Threads::add_thread() {
  constexpr std::chrono::milliseconds kPause{10};
  const auto now = std::chrono::steady_clock::now();
  if (now < retry_at_) return false;
  try {
    start_one();
  } catch (const BackendFailure&) {
    retry_at_ = now + kPause;
    return false;
  }
  return true;
}

void Threads::start_one() {
  for (std::thread& thread : ended_) thread.join();  // they need the lock no more
  ended_.clear();
  const auto self = threads_.emplace(threads_.end());
  try {
    *self = start_thread([this, self] { run(self); });
  } catch (const BackendFailure&) {
    threads_.erase(self);
    throw;
  }
  ++idle_;  // on its behalf: it is free until it takes a task
}

void Threads::run(std::list<std::thread>::iterator self) {
  constexpr std::chrono::seconds kIdleTime{1};
  std::unique_lock lock(mutex_);
  const auto is_wanted = [this] { return is_stopping_ || !tasks_.empty(); };
  while (true) {
    if (threads_.size() == 1) {
      wake_.wait(lock, is_wanted);
    } else if (!wake_.wait_for(lock, kIdleTime, is_wanted)) {
      if (threads_.size() == 1) continue;
      --idle_;
      return ended_.splice(ended_.end(), threads_, self);
    }
    --idle_;
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
    ++idle_;
  }
}

}  // namespace drun::worker
