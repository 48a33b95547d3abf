// edge. Finishes the messages that a program has started, while the program does not wait for them
// itself: one thread polls all of them every few milliseconds, by which most make progress, and one
// thread each for those that make progress only in their own finish.
//
// Threads: one for each, as a message waits for another rank and must not wait behind another
//          message; kMostThreads at most. A message that gets none stays open: its waiter does it,
//          or a thread that becomes free.
// Thread:  start, send and look_after from any.
// Owner:   a group; stop() has all that was sent done, then joins.
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
  // Whether the operation would return at once. Must not block. Not called after the operation has
  // begun.
  using Question = std::function<bool()>;

  // Can only be run by run().
  explicit Request(Action action) : action_(std::move(action)) {}
  // Can also be run by waiters.
  Request(Action action, Question would_end)
      : action_(std::move(action)), would_end_(std::move(would_end)) {}
  // Done here and now.
  template <typename Now>
  static std::shared_ptr<Request> done(Now&& now) {
    auto request = std::make_shared<Request>(Action());
    request->keep_end_of(now);
    request->state_ = State::Done;
    return request;
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  // Runs it, unless a thread has begun to. Does not throw; get() does.
  void run();

  // Until it is done.
  void wait();
  // False: not done within that time. It does nothing for it but to ask.
  bool wait_for(std::chrono::milliseconds time);
  // No thread has begun it.
  bool is_open() const;
  // Done, or it would return at once.
  bool is_done();
  // Requires that it is done. Its result, or throws what it threw.
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
  // Messages that may be under way beyond those that have a thread: most are waited for at once.
  static constexpr std::size_t kMostWithoutThread = 256;

  RequestThreads() = default;
  ~RequestThreads() { stop(); }
  RequestThreads(const RequestThreads&) = delete;
  RequestThreads& operator=(const RequestThreads&) = delete;

  // Before a message is started that send or look_after will be given. Throws BackendFailure
  // (System) where the system allows no thread for it, or where earlier messages still wait for
  // one.
  void start();
  // Run by its waiter, or by a thread when the program has asked whether it is done or does not
  // wait for it within a few milliseconds.
  std::shared_ptr<Request> send(Request::Action action);
  // To be asked after until it is done: every millisecond, every ten where it takes long. Requires
  // one whose end can be asked for.
  void look_after(std::shared_ptr<Request> request);
  // Afterwards nothing may be sent. The second call does nothing.
  void stop();

 private:
  using Requests = std::vector<std::shared_ptr<Request>>;

  void watch();

  std::mutex mutex_;
  std::condition_variable changed_;  // what the watcher waits for
  Requests fresh_;                   // since it last looked
  bool is_watching_ = false;
  bool is_slow_ = false;
  bool is_stopping_ = false;
  std::atomic<std::size_t> open_ = 0;            // of those sent: not begun yet
  std::atomic<std::size_t> without_thread_ = 0;  // of these: there was none when last asked
  Threads threads_{kMostThreads};
  Threads watcher_{1};
};

}  // namespace drun::worker
