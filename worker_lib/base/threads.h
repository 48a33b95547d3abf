// edge. Threads of the library. They block all signals, which belong to the program's own threads.
//
// Thread:  any.
// Owner:   the groups of one connect; stop() runs what was submitted before, then joins. Tasks do
//          not throw.
// Errors:  start and start_thread throw BackendFailure (System) where the system allows no more
//          threads (ulimit -u, the cgroup's pids.max, memory); nothing has changed then.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

namespace drun::worker {

std::thread start_thread(std::function<void()> body);

// Threads that take tasks in order. Another thread is started when all are busy, or when one is
// about to block while tasks are waiting. All but one end after they have been idle for a second.
class Threads {
 public:
  Threads() = default;
  ~Threads() { stop(); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  // Starts the first thread, if there is none. submit cannot fail afterwards.
  void start();
  // Runs the task once a thread is free. Requires start().
  void submit(std::function<void()> task);
  // Call it in a task that is about to block for long.
  void let_others_run();
  // Like submit, but only if a thread can begin the task at once. Otherwise returns false.
  bool try_submit(std::function<void()> task);
  // Nothing may be submitted afterwards. The second call has no effect.
  void stop();

 private:
  void enqueue(std::function<void()> task);  // mutex_ is held
  bool add_thread();                         // mutex_ is held
  void start_one();                          // mutex_ is held
  void run(std::list<std::thread>::iterator self);

  std::atomic<bool> has_started_ = false;  // read for each operation, without mutex_
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  std::size_t idle_ = 0;
  bool is_stopping_ = false;
  std::list<std::thread> threads_;
  std::list<std::thread> ended_;                      // to be joined
  std::chrono::steady_clock::time_point retry_at_{};  // after the system allowed no more
};

}  // namespace drun::worker
