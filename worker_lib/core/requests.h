// edge. Asynchronous operations, and how they proceed while the program does not wait for them.
//
// A thread that waits for an operation runs it, because waking another thread takes ten times as
// long as a short one. Otherwise a thread of Progress does:
//
//   messages     are polled by one thread, every few milliseconds. Those that make progress only in
//                their own finish occupy a thread each, at most kMostBlocking of them; further ones
//                wait for a thread or for their waiter.
//   collectives  of a group run one after the other, from the call on, on one thread. Groups do not
//                share it: ranks may start collectives of two groups in different orders.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "drun/backend.h"
#include "worker_lib/base/process.h"
#include "worker_lib/base/threads.h"

namespace drun::worker {

class Progress;
class RequestQueue;

// --- One asynchronous operation, run once, by the first thread that reaches it
//
//     open --run() or a permitted wait()--> begun --> done      (with its result or exception)
//
// It is shared by its Works and the threads that may run it. act() releases everything it holds.
// Forks:   in a child of its process it counts as done with an error (Usage): its threads are the
//          parent's, and so are the connections that it would use.

class Request : public std::enable_shared_from_this<Request> {
 public:
  virtual ~Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  // Runs the operation, unless a thread has begun it. Does not throw; get() does.
  void run();

  // Blocks until it is done.
  void wait();
  // False if it is not done within that time. Polls the operation once, then waits for another
  // thread.
  bool wait_for(std::chrono::milliseconds time);
  // For an operation on a GPU: as Transfer::wait_on. Otherwise, and once it is done or has failed,
  // false. The operation is not done, and its group not gone, before it has returned.
  bool wait_on(void* stream);
  // This process was forked from the one that started it.
  bool is_inherited() const { return fork_generation() != fork_generation_; }
  // True if no thread has begun it.
  bool is_open() const;
  // Polls the operation, and runs it if it would return at once. If it makes progress only while it
  // runs, asks for a thread. True if it is done.
  bool is_done();
  // The same without polling.
  bool is_over() const;
  // Returns the result or throws the operation's exception. Requires that this thread has found it
  // done.
  int get() const;

 protected:
  // Waiters run it. `transfer`: of an operation that may be on a GPU.
  explicit Request(std::weak_ptr<Transfer> transfer) : transfer_(std::move(transfer)) {}
  // Waiters run the queue up to it.
  explicit Request(std::shared_ptr<RequestQueue> queue) : queue_(std::move(queue)) {}
  // The operation. Returns the other rank of a message, and any number otherwise. Called once.
  virtual int act() = 0;
  // Whether act() would return at once; absent: it makes progress only while it runs. Must not
  // block. Not called once the operation has begun.
  virtual std::optional<bool> would_end() { return std::nullopt; }

 private:
  friend class GroupRequests;
  enum class State { Open, Begun, Done };

  void perform(std::unique_lock<std::mutex>& lock);

  const int fork_generation_ = fork_generation();
  mutable std::mutex mutex_;  // may stay locked in a forked child
  std::condition_variable done_;
  State state_ = State::Open;
  const std::weak_ptr<Transfer> transfer_;
  int in_transfer_ = 0;                  // threads in wait_on()
  std::shared_ptr<RequestQueue> queue_;  // null if waiters run it, and once it is done
  Progress* progress_ = nullptr;         // has the threads; null: none looks after it
  bool has_thread_ = false;
  int result_ = 0;
  std::exception_ptr failure_;
};

// --- The threads. Owner: the groups of one connect. Thread: any.

class Progress {
 public:
  static constexpr std::size_t kMostBlocking = 64;

  ~Progress();
  Progress() = default;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  Threads& threads() { return threads_; }
  // Runs it on a thread if fewer than kMostBlocking requests occupy one. Returns whether it does.
  bool try_run(std::shared_ptr<Request> request);
  // Polls the request until it is done: every millisecond, later every ten.
  // Requires threads().start() and a request that can be polled.
  void poll(std::shared_ptr<Request> request, const void* owner);
  // The owner's requests, which are no longer polled.
  std::vector<std::shared_ptr<Request>> take_back(const void* owner);

 private:
  struct Polled {
    std::shared_ptr<Request> request;
    const void* owner;
  };

  void run();

  std::mutex mutex_;
  std::condition_variable changed_;  // for the polling thread
  std::condition_variable polled_;
  std::vector<Polled> fresh_;  // added since its last look
  std::vector<Polled> all_;    // used by the polling thread without the lock while is_polling_
  bool is_running_ = false;
  bool is_polling_ = false;
  bool is_slow_ = false;
  bool is_stopping_ = false;
  std::atomic<std::size_t> blocking_ = 0;
  Threads threads_;
};

// --- The requests of one group. Thread: any.

class GroupRequests {
 public:
  explicit GroupRequests(Progress& progress);
  ~GroupRequests() { stop(); }
  GroupRequests(const GroupRequests&) = delete;
  GroupRequests& operator=(const GroupRequests&) = delete;

  // Call before starting an operation that is then passed to a function below. Throws
  // BackendFailure (System).
  void start() { progress_.threads().start(); }
  // For a message, or what the backend has started. It is run by its waiter, or by a thread if the
  // program polls it or does not wait for it within a few milliseconds.
  void look_after(std::shared_ptr<Request> request);
  // For a collective: runs after those queued before.
  std::shared_ptr<Request> queue(std::function<int()> action);
  // Runs all requests that are not done. Nothing may be added afterwards. The second call has no
  // effect.
  void stop();

 private:
  Progress& progress_;
  const std::shared_ptr<RequestQueue> queue_;
};

}  // namespace drun::worker
