// edge. Watches the deadlines of operations in this process's groups, and the ends of other ranks.
//
// Thread:  starts a thread with the first thing to watch. That thread calls the functions of
//          lifelines, one at a time. Those of deadlines can block, for the store or a backend's
//          abort, and have a thread each. All methods: any thread.
// Cost:    about 20 ns per DeadlineGuard, because shared-memory operations take less than 1 us.
// Errors:  BackendFailure (System): of the constructor without a free descriptor; of functions that
//          start the thread, if the system allows no more threads.
// Owner:   shared by the groups of one connect; outlives everything registered with it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "drun/backend.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_lib/base/threads.h"

namespace drun::worker {

class Watch {
 public:
  using Id = std::uint64_t;

  Watch();
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Starts the thread, unless it is running.
  void start();
  // Calls `on_end` once for each rank whose lifeline ends.
  Id add_lifelines(std::vector<Lifeline> lifelines, std::function<void(int rank)> on_end);
  // Returns when the function is not running and will not be called again. Called from within that
  // function, returns at once.
  void remove(Id id);

 private:
  friend class DeadlineGuard;

  // The deadline of a running operation. A guard takes and returns a slot with two atomic
  // operations.
  //
  //     kFree -> kTaken -> the deadline --(guard ends)--> kFree
  //                                     --(late)--> kCalling -> kCalled --(guard ends)--> kFree
  struct alignas(64) Slot {
    std::atomic<Deadline::rep> state{kFree};
    void (*call)(void*) = nullptr;
    void* argument = nullptr;
  };
  static constexpr Deadline::rep kFree = 0;
  static constexpr Deadline::rep kTaken = -1;
  static constexpr Deadline::rep kCalling = -2;
  static constexpr Deadline::rep kCalled = -3;
  // More are added when more operations than these run at the same time.
  struct Slots {
    std::array<Slot, 16> all;
    std::atomic<Slots*> next = nullptr;  // owned
    ~Slots() { delete next.load(); }
  };

  Slot& take_slot(Deadline deadline, void (*call)(void*), void* argument);
  // Returns when the function is not running and will not be called again.
  void give_back(Slot& slot, Deadline deadline);

  struct Lines {
    std::vector<Lifeline> alive;
    std::function<void(int)> call;
  };

  void start_or_wake();
  void run();
  // Returns the lifelines that seem to have ended, sorted.
  std::vector<int> wait_for_something(std::unique_lock<std::mutex>& lock);
  Deadline next_deadline() const;
  void call_late(std::unique_lock<std::mutex>& lock);
  void call_ended(std::unique_lock<std::mutex>& lock, const std::vector<int>& ready);

  const UniqueFd wake_fd_;
  std::mutex mutex_;
  std::condition_variable called_;
  std::map<Id, Lines> lines_;
  Id last_id_ = 0;
  Id calling_ = 0;  // of the running function; 0: none
  // When the thread wakes next by itself; the minimum value while it is not running.
  std::atomic<Deadline::rep> awake_at_ = Deadline::min().time_since_epoch().count();
  Slots slots_;
  std::atomic<bool> is_started_ = false;
  bool is_stopping_ = false;
  std::thread thread_;
  Threads late_calls_;  // they use all of the above
};

// A deadline that is removed at the end of the scope: calls `on_late`, to which it holds a
// reference, unless the scope has ended before.
class DeadlineGuard {
 public:
  template <typename OnLate>
  DeadlineGuard(Watch& watch, Deadline deadline, const OnLate& on_late)
      : watch_(watch),
        deadline_(deadline),
        slot_(watch.take_slot(
            deadline, [](void* function) { (*static_cast<const OnLate*>(function))(); },
            const_cast<OnLate*>(&on_late))) {}
  ~DeadlineGuard() { watch_.give_back(slot_, deadline_); }
  DeadlineGuard(const DeadlineGuard&) = delete;
  DeadlineGuard& operator=(const DeadlineGuard&) = delete;

 private:
  Watch& watch_;
  const Deadline deadline_;
  Watch::Slot& slot_;
};

}  // namespace drun::worker
