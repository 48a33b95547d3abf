// edge. The last resort: kills and reaps everything below this process, until nothing is left.
//
// Safety:  usable in a signal handler; never throws, allocates nothing but by mmap.
// Owner:   guardian. Reaps children that are nobody else's business any more: the caller ends next.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <span>

namespace drun::agent {

// Long enough for processes with much memory to be torn down by the kernel.
constexpr std::chrono::seconds kSweepLimit{5};

// Who would not die within the limit: stuck in the kernel.
struct SweepResult {
  std::array<int, 16> pids{};
  std::size_t count = 0;  // at most as many as there is room for
};

// `except`: these children and what is below them are left alone.
SweepResult sweep(std::span<const int> except, std::chrono::milliseconds limit);

}  // namespace drun::agent
