#include "worker_lib/nccl/cancel.h"

#include <sched.h>

#include <algorithm>

namespace drun::worker {

using std::chrono::microseconds;

void CancelToken::raise() {
  change([this] { is_raised_ = true; });
}

void CancelToken::tell_lost(int rank) {
  change([this, rank] {
    lost_.emplace(rank, std::chrono::steady_clock::now());
    has_lost_ = true;
  });
}

std::optional<int> CancelToken::lost_rank(std::optional<int> which,
                                          std::chrono::milliseconds ago) const {
  if (!has_lost_) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const Deadline since = std::chrono::steady_clock::now() - ago;
  for (const auto& [rank, when] : lost_) {
    if ((!which || *which == rank) && when <= since) return rank;
  }
  return std::nullopt;
}

void CancelToken::pause(microseconds time) {
  std::unique_lock lock(mutex_);
  if (!is_raised_) told_.wait_for(lock, time);
}

bool CancelToken::wait_until(Deadline deadline, const std::function<bool()>& is_true) {
  std::unique_lock lock(mutex_);
  told_.wait_until(lock, deadline, [&] { return is_raised_ || is_true(); });
  return !is_raised_ && is_true();
}

void CancelToken::change(const std::function<void()>& action) {
  {
    const std::lock_guard lock(mutex_);
    action();
  }
  told_.notify_all();
}

void Backoff::wait(CancelToken& stop) {
  constexpr microseconds kEager{100};
  constexpr microseconds kLeast{20};
  constexpr microseconds kMost{1000};
  const auto waited =
      std::chrono::duration_cast<microseconds>(std::chrono::steady_clock::now() - began_);
  if (waited < kEager) {
    sched_yield();
  } else {
    stop.pause(std::clamp(waited / 8, kLeast, kMost));
  }
}

}  // namespace drun::worker
