// edge. Completes asynchronous messages while the program does not wait for them. One thread polls,
// every few milliseconds, the messages that make progress by polling. Messages that make progress
// only in their own finish get one thread each.
//
// Threads: one per message, because a message waits for another rank and must not wait for another
//          message; at most kMostThreads. A message without a thread stays open until its waiter
//          runs it, or a thread becomes free.
// Thread:  start, send and look_after: any.
// Owner:   a group. stop() completes all sent requests and joins the threads.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "worker_lib/base/threads.h"

namespace drun::worker {

// --- One asynchronous operation, run once, by the first thread that reaches it
//
//     open --run() or a permitted wait()--> begun --> done      (with its result or exception)
//
// A Request that can be polled is run by its first waiter, because waking another thread takes ten
// times as long as a short message. It is shared by its Works and the thread that runs it. The
// Action and everything it holds are destroyed on completion.

class Request {
 public:
  // Returns the other rank of a message, and any number otherwise.
  using Action = std::function<int()>;
  // Whether the operation would return at once. Must not block. Not called once the operation has
  // begun.
  using Question = std::function<bool()>;

  // Can only be run by run().
  explicit Request(Action action) : action_(std::move(action)) {}
  // Can also be run by waiters.
  Request(Action action, Question would_end)
      : action_(std::move(action)), would_end_(std::move(would_end)) {}
  // Runs `now` immediately and returns a completed request.
  template <typename Now>
  static std::shared_ptr<Request> done(Now&& now) {
    auto request = std::make_shared<Request>(Action());
    request->keep_end_of(now);
    request->state_ = State::Done;
    return request;
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  // Runs the operation, unless a thread has begun it. Does not throw; get() does.
  void run();

  // Blocks until it is done.
  void wait();
  // False if it is not done within that time. Polls the operation once, then waits for another
  // thread.
  bool wait_for(std::chrono::milliseconds time);
  // True if no thread has begun it.
  bool is_open() const;
  // Polls the operation, and runs it if it would return at once. True if it is done.
  bool is_done();
  // Returns the result or throws the operation's exception. Requires that it is done.
  int get() const;

 private:
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

  mutable std::mutex mutex_;
  std::condition_variable done_;
  State state_ = State::Open;
  Action action_;
  Question would_end_;
  int result_ = 0;
  std::exception_ptr failure_;
};

// --- Threads that run them

class RequestThreads {
 public:
  static constexpr std::size_t kMostThreads = 1024;
  // How many messages may be pending without a thread; most are waited for at once.
  static constexpr std::size_t kMostWithoutThread = 256;

  RequestThreads() = default;
  ~RequestThreads() { stop(); }
  RequestThreads(const RequestThreads&) = delete;
  RequestThreads& operator=(const RequestThreads&) = delete;

  // Call before starting a message that is then passed to send or look_after. Throws BackendFailure
  // (System) if no thread can be created for it, or too many earlier messages are waiting for one.
  void start();
  // The request is run by its waiter, or by a thread if the program polls it or does not wait for
  // it within a few milliseconds.
  std::shared_ptr<Request> send(Request::Action action);
  // Polls the request until it is done: every millisecond, later every ten. Requires a request that
  // can be polled.
  void look_after(std::shared_ptr<Request> request);
  // Nothing may be sent afterwards. The second call has no effect.
  void stop();

 private:
  using Requests = std::vector<std::shared_ptr<Request>>;

  void watch();

  std::mutex mutex_;
  std::condition_variable changed_;  // for the watching thread
  Requests fresh_;                   // added since its last check
  bool is_watching_ = false;
  bool is_slow_ = false;
  bool is_stopping_ = false;
  std::atomic<std::size_t> open_ = 0;            // sent and not begun
  std::atomic<std::size_t> without_thread_ = 0;  // of these, without a thread at the last check
  Threads threads_{kMostThreads};
  Threads watcher_{1};
};

}  // namespace drun::worker
