// edge. The threads of a group, all started when first needed. They take no signals: those are the
// program's.
//
// Thread:  submit from any.
// Owner:   a group; stop() runs what was submitted before, then joins. Tasks do not throw.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace drun::worker {

// Up to `most` threads that take tasks in the order they were given; another one is started when
// all are busy.
class Threads {
 public:
  static constexpr std::size_t kNoLimit = static_cast<std::size_t>(-1);

  explicit Threads(std::size_t most) : most_(most) {}
  ~Threads() { stop(); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  void submit(std::function<void()> task);
  // Afterwards nothing may be submitted. Again: nothing.
  void stop();

 private:
  void run();

  const std::size_t most_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  std::size_t idle_ = 0;
  bool is_stopping_ = false;
  std::vector<std::thread> threads_;
};

// Tasks one after the other.
class Executor : public Threads {
 public:
  Executor() : Threads(1) {}
};

}  // namespace drun::worker
