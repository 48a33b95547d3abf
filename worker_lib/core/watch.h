// edge. Watches the deadlines of operations in this process's groups, and the ends of other ranks.
//
// Thread:  starts a thread with the first thing to watch. That thread calls the given functions,
//          one at a time. All methods: any thread.
// Cost:    about 20 ns per DeadlineGuard, because shared-memory operations take less than 1 us.
// Errors:  functions that start the thread throw BackendFailure (System) if the system allows no
//          more threads.
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
  // Calls `on_late` at the deadline, unless it is removed before.
  Id add_deadline(Deadline deadline, std::function<void()> on_late);
  // Calls `on_end` once for each rank whose lifeline ends.
  Id add_lifelines(std::vector<Lifeline> lifelines, std::function<void(int rank)> on_end);
  // Returns when the function is not running and will not be called again. Called from within that
  // function, returns at once.
  void remove(Id id);

 private:
  friend class DeadlineGuard;

  // The deadline of a running operation. A guard takes and returns a slot with two atomic
  // operations; if none is free, it uses late_.
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
  static constexpr std::size_t kSlots = 16;

  // Null if none is free.
  Slot* take_slot(Deadline deadline, void (*call)(void*), void* argument);
  // Returns when the function is not running and will not be called again.
  void give_back(Slot& slot, Deadline deadline);

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
  Deadline next_deadline() const;
  void call_late_slots(std::unique_lock<std::mutex>& lock);
  void call_late(std::unique_lock<std::mutex>& lock);
  void call_ended(std::unique_lock<std::mutex>& lock);
  void call(std::unique_lock<std::mutex>& lock, Id id, const std::function<void()>& function);

  int wake_fd_ = -1;
  std::mutex mutex_;
  std::condition_variable called_;
  std::map<Id, Late> late_;
  std::map<Id, Lines> lines_;
  Id last_id_ = 0;
  Id calling_ = 0;  // of the running function; 0: none
  // When the thread wakes next by itself; the minimum value while it is not running.
  std::atomic<Deadline::rep> awake_at_ = Deadline::min().time_since_epoch().count();
  std::array<Slot, kSlots> slots_;
  std::atomic<bool> is_started_ = false;
  bool is_stopping_ = false;
  std::thread thread_;
};

// A deadline that is removed at the end of the scope. Holds a reference to `on_late`.
class DeadlineGuard {
 public:
  template <typename OnLate>
  DeadlineGuard(Watch& watch, Deadline deadline, const OnLate& on_late)
      : watch_(watch), deadline_(deadline) {
    const auto call = [](void* function) { (*static_cast<const OnLate*>(function))(); };
    slot_ = watch.take_slot(deadline, call, const_cast<OnLate*>(&on_late));
    if (slot_ == nullptr) id_ = watch.add_deadline(deadline, [&on_late] { on_late(); });
  }
  ~DeadlineGuard() {
    if (slot_ != nullptr) {
      watch_.give_back(*slot_, deadline_);
    } else {
      watch_.remove(id_);
    }
  }
  DeadlineGuard(const DeadlineGuard&) = delete;
  DeadlineGuard& operator=(const DeadlineGuard&) = delete;

 private:
  Watch& watch_;
  const Deadline deadline_;
  Watch::Slot* slot_ = nullptr;
  Watch::Id id_ = 0;
};

}  // namespace drun::worker
