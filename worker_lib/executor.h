// edge. One thread that runs tasks in the order they were given.
//
// Owner:   a group; the destructor runs what was submitted before and joins the thread.
// Thread:  submit from any. The thread takes no signals: those are the program's.
// Errors:  what a task throws is in its future.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

namespace drun::worker {

class Executor {
 public:
  Executor();
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  std::future<void> submit(std::function<void()> task);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::packaged_task<void()>> tasks_;
  bool is_stopping_ = false;
  std::thread thread_;  // last: starts when the others are there
};

}  // namespace drun::worker
