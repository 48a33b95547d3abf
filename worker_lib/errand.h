// edge. An operation that was started: done by whoever comes to it first, once.
//
//     open --run, or a wait of who may--> begun --> done      (with its result, or what it threw)
//
// Waiter:  of an errand whose end can be asked for, whoever waits first does it, on the spot: to
//          have another thread woken for it costs ten times what a short message takes.
// Owner:   shared by its Works and by who runs it. The deed, and all it holds, is gone when it is
//          done.
// Thread:  any.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace drun::worker {

class Errand {
 public:
  // Returns the other rank of a message, and any number otherwise.
  using Deed = std::function<int()>;
  // Whether the deed would end at once. It must not wait; not asked any more when the deed begins.
  using Question = std::function<bool()>;

  // For run() alone.
  explicit Errand(Deed deed) : deed_(std::move(deed)) {}
  // For waiters, too.
  Errand(Deed deed, Question would_end)
      : deed_(std::move(deed)), would_end_(std::move(would_end)) {}
  // Done here and now.
  template <typename Now>
  static std::shared_ptr<Errand> done(Now&& now) {
    auto errand = std::make_shared<Errand>(Deed());
    errand->keep_end_of(now);
    errand->state_ = State::Done;
    return errand;
  }
  Errand(const Errand&) = delete;
  Errand& operator=(const Errand&) = delete;

  // Does it, unless somebody has begun to. Throws nothing: get() does.
  void run();

  // Until it is done.
  void wait();
  // False: not done within that time. It does nothing for it but to ask.
  bool wait_for(std::chrono::milliseconds time);
  // Nobody has begun with it.
  bool is_open() const;
  // Done; or it ends at once, now that somebody asks.
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
  Deed deed_;
  Question would_end_;
  int result_ = 0;
  std::exception_ptr failure_;
};

}  // namespace drun::worker
