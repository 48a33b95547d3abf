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

#include "worker_lib/base/process.h"
#include "worker_lib/base/threads.h"

namespace drun::worker {

class Progress;
class RequestQueue;

// --- One asynchronous operation, run once, by the first thread that reaches it
//
//     open --run() or a permitted wait()--> begun --> done      (with its result or exception)
//
// It is shared by its Works and the threads that may run it. The Action and everything it holds are
// destroyed on completion.
// Forks:   in a child of its process it counts as done with an error (Usage): its threads are the
//          parent's, and so are the connections that it would use.

class Request : public std::enable_shared_from_this<Request> {
 public:
  // Returns the other rank of a message, and any number otherwise.
  using Action = std::function<int()>;
  // Whether the operation would return at once; absent: it makes progress only while it runs. Must
  // not block. Not called once the operation has begun.
  using Question = std::function<std::optional<bool>()>;

  // Can only be run by run().
  explicit Request(Action action) : action_(std::move(action)) {}
  // Can also be run by waiters.
  Request(Action action, Question would_end)
      : can_be_polled_(true), action_(std::move(action)), would_end_(std::move(would_end)) {}
  // Waiters run the queue up to it.
  Request(Action action, std::shared_ptr<RequestQueue> queue)
      : action_(std::move(action)), queue_(std::move(queue)) {}
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
  // For a class that overrides both functions; it can also be run by waiters.
  Request() : can_be_polled_(true) {}
  // The action. Called once.
  virtual int act() { return std::exchange(action_, nullptr)(); }
  // The question.
  virtual std::optional<bool> would_end() { return would_end_(); }

 private:
  friend class GroupRequests;
  enum class State { Open, Begun, Done };

  void perform(std::unique_lock<std::mutex>& lock);
  template <typename Now>
  void keep_end_of(Now&& now) {
    try {
      result_ = now();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  const int fork_generation_ = fork_generation();
  mutable std::mutex mutex_;  // may stay locked in a forked child
  std::condition_variable done_;
  State state_ = State::Open;
  const bool can_be_polled_ = false;
  Action action_;
  Question would_end_;
  std::shared_ptr<RequestQueue> queue_;  // null once it is done
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
  std::shared_ptr<Request> queue(Request::Action action);
  // Runs all requests that are not done. Nothing may be added afterwards. The second call has no
  // effect.
  void stop();

 private:
  Progress& progress_;
  const std::shared_ptr<RequestQueue> queue_;
};

}  // namespace drun::worker
