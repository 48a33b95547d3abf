#include "worker_lib/base/threads.h"

#include <atomic>
#include <cstdlib>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "drun/backend.h"
#include "worker_lib/base/signals.h"

namespace drun::worker {

namespace {

std::atomic<void (*)()> exit_action = nullptr;

void run_exit_action() {
  if (void (*const action)() = exit_action.exchange(nullptr)) action();
}

}  // namespace

void at_exit(void (*action)()) {
  exit_action = action;
  renew_at_exit();
}

void renew_at_exit() { std::atexit(run_exit_action); }

std::thread start_thread(std::function<void()> body) {
  const SignalsBlocked blocked;  // inherited by the thread
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    throw BackendFailure(
        WorkerError::Kind::System, std::nullopt,
        "cannot start a thread: " + error.code().message() +
            "; raise the limit on processes (ulimit -u, or the cgroup's pids.max)");
  }
}

void Threads::start() {
  const std::lock_guard lock(mutex_);
  if (!threads_.empty()) return;
  threads_.push_back(start_thread([this] { run(); }));
  ++idle_;
}

void Threads::submit(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  if (idle_ <= tasks_.size()) add_thread();  // else a later thread, or the first one, takes it
  tasks_.push_back(std::move(task));
  wake_.notify_one();
}

bool Threads::try_submit(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  if (idle_ <= tasks_.size() && !add_thread()) return false;
  tasks_.push_back(std::move(task));
  wake_.notify_one();
  return true;
}

bool Threads::try_reserve(std::size_t free) {
  const std::lock_guard lock(mutex_);
  return idle_ >= tasks_.size() + free || add_thread();
}

void Threads::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

bool Threads::add_thread() {
  constexpr std::chrono::milliseconds kPause{10};
  const auto now = std::chrono::steady_clock::now();
  if (threads_.size() >= most_ || now < retry_at_) return false;
  try {
    threads_.push_back(start_thread([this] { run(); }));
  } catch (const BackendFailure&) {
    retry_at_ = now + kPause;
    return false;
  }
  ++idle_;  // on its behalf: it is free until it takes a task
  return true;
}

void Threads::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return is_stopping_ || !tasks_.empty(); });
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
