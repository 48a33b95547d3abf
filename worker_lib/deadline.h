// edge. What is left of a call's time. It reads the steady clock.
// Thread: any.
#pragma once

#include <algorithm>
#include <chrono>

#include "drun/backend.h"

namespace drun::worker {

// At least 1 ms, so that what is asked for at the last moment is asked once. Unit: ms.
inline std::chrono::milliseconds left_until(Deadline deadline) {
  using std::chrono::milliseconds;
  const auto left = deadline - Deadline::clock::now();
  return std::max(std::chrono::duration_cast<milliseconds>(left), milliseconds(1));
}

}  // namespace drun::worker
