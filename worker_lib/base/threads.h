// edge. The threads of a group. They block all signals, which belong to the program's own threads.
//
// Thread:  any.
// Owner:   a group; stop() runs what was submitted before, then joins. Tasks do not throw.
// Errors:  start and start_thread throw BackendFailure (System) where the system allows no more
//          threads (ulimit -u, the cgroup's pids.max, memory); nothing has changed then.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace drun::worker {

std::thread start_thread(std::function<void()> body);

// Calls `action` when the process exits normally. Replaces an earlier action.
void at_exit(void (*action)());
// Call after a library that has its own exit handlers was loaded: the action then runs before them.
void renew_at_exit();

// Up to `most` threads that take tasks in order. Another thread is started when all are busy.
class Threads {
 public:
  explicit Threads(std::size_t most) : most_(most) {}
  ~Threads() { stop(); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  // Starts the first thread, if there is none. submit cannot fail afterwards.
  void start();
  // Runs the task once a thread is free. Requires start().
  void submit(std::function<void()> task);
  // Like submit, but only if a thread can begin the task at once. Otherwise returns false.
  bool try_submit(std::function<void()> task);
  // Starts another thread unless at least `free` are free. False if `most` are running, or the
  // system allows no more.
  bool try_reserve(std::size_t free);
  // Nothing may be submitted afterwards. The second call has no effect.
  void stop();

 private:
  bool add_thread();  // mutex_ is held
  void run();

  const std::size_t most_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  std::size_t idle_ = 0;
  bool is_stopping_ = false;
  std::vector<std::thread> threads_;
  std::chrono::steady_clock::time_point retry_at_{};  // after the system allowed no more
};

// Runs tasks one after the other.
class Executor : public Threads {
 public:
  Executor() : Threads(1) {}
};

}  // namespace drun::worker
