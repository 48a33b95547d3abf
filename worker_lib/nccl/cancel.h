// edge. Cancels waits of a backend's operations: after abort(), or when ranks are gone.
//
// Thread:  any.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>

#include "drun/backend.h"

namespace drun::worker {

class CancelToken {
 public:
  void raise() {
    change([this] { is_raised_ = true; });
  }
  void tell_lost(int rank) {
    change([this, rank] {
      lost_.emplace(rank, std::chrono::steady_clock::now());
      has_lost_ = true;
    });
  }
  bool is_raised() const { return is_raised_; }
  // Throws BackendFailure (Broken) after raise().
  void check() const {
    if (is_raised_) throw BackendFailure(WorkerError::Kind::Broken, "aborted");
  }
  // A rank that was reported lost at least `ago` before now; with `which`, only that one.
  std::optional<int> lost_rank(std::optional<int> which, std::chrono::milliseconds ago) const {
    if (!has_lost_) return std::nullopt;
    const std::lock_guard lock(mutex_);
    const Deadline since = std::chrono::steady_clock::now() - ago;
    for (const auto& [rank, when] : lost_)
      if ((!which || *which == rank) && when <= since) return rank;
    return std::nullopt;
  }

  // Returns after `time`, or when something is reported.
  void pause(std::chrono::microseconds time) {
    std::unique_lock lock(mutex_);
    if (!is_raised_) told_.wait_for(lock, time);
  }
  // Waits until `is_true`, whose state must be changed with change(). False if the deadline passes
  // or raise() is called before.
  template <typename IsTrue>
  bool wait_until(Deadline deadline, const IsTrue& is_true) {
    std::unique_lock lock(mutex_);
    told_.wait_until(lock, deadline, [&] { return is_raised_ || is_true(); });
    return !is_raised_ && is_true();
  }
  template <typename Action>
  void change(const Action& action) {
    {
      const std::lock_guard lock(mutex_);
      action();
    }
    told_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable told_;
  // Changed with mutex_, and read for each operation without it.
  std::atomic<bool> is_raised_ = false;
  std::atomic<bool> has_lost_ = false;
  std::map<int, Deadline> lost_;  // rank -> when it was reported
};

}  // namespace drun::worker
