// edge. When a call's time is over, and what is left of it. It reads the steady clock.
// Thread: any.
#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>

#include "drun/backend.h"

namespace drun::worker {

// So long from now. Long times are counted from the clock's last tick, some milliseconds ago, which
// costs a tenth: every call has a deadline, and hardly any meets it.
inline Deadline deadline_in(std::chrono::milliseconds time) {
  if (time < std::chrono::seconds(10)) return Deadline::clock::now() + time;
  timespec tick{};  // of the clock that the steady one is
  clock_gettime(CLOCK_MONOTONIC_COARSE, &tick);
  return Deadline(std::chrono::seconds(tick.tv_sec) + std::chrono::nanoseconds(tick.tv_nsec)) +
         time;
}

// At least 1 ms, so that what is asked for at the last moment is asked once. Unit: ms.
inline std::chrono::milliseconds left_until(Deadline deadline) {
  using std::chrono::milliseconds;
  const auto left = deadline - Deadline::clock::now();
  return std::max(std::chrono::duration_cast<milliseconds>(left), milliseconds(1));
}

}  // namespace drun::worker
