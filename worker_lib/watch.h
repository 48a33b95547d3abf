// edge. What waits beside the operations of this process's groups: for deadlines that a backend
// does not keep by itself, and for the end of other ranks.
//
// Thread:  one of its own, which calls the functions given to it, one at a time; started with the
//          first thing to wait for. The rest from any thread.
// Owner:   shared by the groups of one connect; outlives what is registered.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "drun/backend.h"

namespace drun::worker {

class Watch {
 public:
  using Id = std::uint64_t;

  Watch();
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Calls `on_late` at the deadline, unless removed before.
  Id add_deadline(Deadline deadline, std::function<void()> on_late);
  // Calls `on_end` once for each rank whose lifeline ends.
  Id add_lifelines(std::vector<Lifeline> lifelines, std::function<void(int rank)> on_end);
  // Returns when its function is not running and will not be called any more; from within that
  // function at once.
  void remove(Id id);

 private:
  struct Late {
    Deadline deadline{};
    std::function<void()> call;
  };
  struct Lines {
    std::vector<Lifeline> alive;
    std::function<void(int)> call;
  };

  void start_or_wake();
  void run();
  void wait_for_something(std::unique_lock<std::mutex>& lock);
  void call_late(std::unique_lock<std::mutex>& lock);
  void call_ended(std::unique_lock<std::mutex>& lock);
  void call(std::unique_lock<std::mutex>& lock, Id id, const std::function<void()>& function);

  int wake_fd_ = -1;
  std::mutex mutex_;
  std::condition_variable called_;
  std::map<Id, Late> late_;
  std::map<Id, Lines> lines_;
  Id last_id_ = 0;
  Id calling_ = 0;       // whose function is running; 0: none
  Deadline awake_at_{};  // when the thread looks again by itself
  bool is_stopping_ = false;
  std::thread thread_;
};

// A deadline that is removed at the end of the scope.
class DeadlineGuard {
 public:
  DeadlineGuard() = default;
  DeadlineGuard(Watch& watch, Deadline deadline, std::function<void()> on_late)
      : watch_(&watch), id_(watch.add_deadline(deadline, std::move(on_late))) {}
  ~DeadlineGuard() {
    if (watch_ != nullptr) watch_->remove(id_);
  }
  DeadlineGuard(const DeadlineGuard&) = delete;
  DeadlineGuard& operator=(const DeadlineGuard&) = delete;

 private:
  Watch* watch_ = nullptr;
  Watch::Id id_ = 0;
};

}  // namespace drun::worker
