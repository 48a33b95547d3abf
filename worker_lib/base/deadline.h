// edge. Converts between deadlines and remaining times, with the steady clock.
#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>

#include "drun/backend.h"

namespace drun::worker {

// The clock's last tick, a few milliseconds ago. This is ten times faster than the time.
inline Deadline coarse_now() {
  timespec tick{};  // of the clock behind steady_clock
  clock_gettime(CLOCK_MONOTONIC_COARSE, &tick);
  return Deadline(std::chrono::seconds(tick.tv_sec) + std::chrono::nanoseconds(tick.tv_nsec));
}

// Longer times count as this one: a deadline in milliseconds::max() does not fit in the clock.
inline constexpr std::chrono::milliseconds kLongestTime = std::chrono::hours(24 * 365);

// Times of 10 s and more are counted from the clock's last tick, because every call computes a
// deadline.
inline Deadline deadline_in(std::chrono::milliseconds time) {
  const auto bounded = std::clamp(time, -kLongestTime, kLongestTime);
  return (bounded < std::chrono::seconds(10) ? Deadline::clock::now() : coarse_now()) + bounded;
}

// The remaining time in ms. At least 1 ms, so that a request at the last moment is made once.
inline std::chrono::milliseconds left_until(Deadline deadline) {
  using std::chrono::milliseconds;
  const auto left = deadline - Deadline::clock::now();
  return std::max(std::chrono::duration_cast<milliseconds>(left), milliseconds(1));
}

}  // namespace drun::worker
