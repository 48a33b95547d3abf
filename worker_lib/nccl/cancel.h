// edge. What ends the waiting of a backend's operations early: that it was aborted, or that ranks
// are gone. And how often they look meanwhile.
//
// Neither NCCL nor a GPU's event has anything that could be waited for until a deadline: both can
// only be asked. So who waits looks all the time at first, as most operations take microseconds,
// then at growing distances of up to a millisecond, asleep in between, woken by what is told here.
//
// Thread:  any.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "drun/backend.h"

namespace drun::worker {

class Stop {
 public:
  void raise();
  void tell_lost(int rank);
  bool is_raised() const;
  // A rank that was told lost at least `ago` before now; with `which`, only that one.
  std::optional<int> lost_rank(std::optional<int> which, std::chrono::milliseconds ago) const;

  // Returns after `time`, or when something has been told.
  void pause(std::chrono::microseconds time);
  // False: the deadline passed, or was_raised, before `is_true`, which changes under change().
  bool wait_until(Deadline deadline, const std::function<bool()>& is_true);
  void change(const std::function<void()>& deed);

 private:
  mutable std::mutex mutex_;
  std::condition_variable told_;
  bool is_raised_ = false;
  std::map<int, Deadline> lost_;  // rank -> when it was told
};

// One wait: between two looks.
class Pace {
 public:
  void wait(Stop& stop);

 private:
  const Deadline began_ = std::chrono::steady_clock::now();
};

}  // namespace drun::worker
