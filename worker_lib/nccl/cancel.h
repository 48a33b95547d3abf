// edge. Cancels waits of a backend's operations: after abort(), or when ranks are gone. Also
// determines the polling interval.
//
// Neither NCCL nor a GPU event can be waited for with a deadline, so both are polled. A waiting
// thread first polls continuously, since most operations take microseconds, and then sleeps for
// growing intervals of up to a millisecond. Reports to this class wake it.
//
// Thread:  any.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "drun/backend.h"

namespace drun::worker {

class CancelToken {
 public:
  void raise();
  void tell_lost(int rank);
  bool is_raised() const { return is_raised_; }
  // A rank that was reported lost at least `ago` before now; with `which`, only that one.
  std::optional<int> lost_rank(std::optional<int> which, std::chrono::milliseconds ago) const;

  // Returns after `time`, or when something is reported.
  void pause(std::chrono::microseconds time);
  // Waits until `is_true`, whose state must be changed with change(). False if the deadline passes
  // or raise() is called before.
  bool wait_until(Deadline deadline, const std::function<bool()>& is_true);
  void change(const std::function<void()>& action);

 private:
  mutable std::mutex mutex_;
  std::condition_variable told_;
  // Changed with mutex_, and read for each operation without it.
  std::atomic<bool> is_raised_ = false;
  std::atomic<bool> has_lost_ = false;
  std::map<int, Deadline> lost_;  // rank -> when it was reported
};

// One wait: determines the interval between two polls.
class Backoff {
 public:
  void wait(CancelToken& stop);

 private:
  const Deadline began_ = std::chrono::steady_clock::now();
};

}  // namespace drun::worker
