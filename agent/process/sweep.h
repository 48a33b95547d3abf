// edge. Kills and reaps all processes below this process, as the last resort.
//
// If /proc cannot be read (descendants.h), kills the workers' process groups, which share_groups
// stores; processes that have left these groups are then not found.
//
// Safety:  usable in a signal handler; never throws; allocates with mmap only.
// Owner:   guardian. Reaps all children, because the caller ends next.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <span>

namespace drun::agent {

// Sufficient for the kernel to free the memory of large processes.
constexpr std::chrono::seconds kSweepLimit{5};

struct SweepResult {
  // Processes that did not die within the limit because they are stuck in the kernel.
  std::array<int, 16> pids{};
  std::size_t count = 0;  // at most pids.size()
  // Only process groups could be killed; other processes may be left.
  bool was_blind = false;
};

// Allocates shared memory for the groups of this process and its forks. Call before the first fork.
// If there is no memory, remember_group has no effect.
void share_groups();
// Stores a worker's process group. Only the last 4,096 are kept.
void remember_group(int group);

// `except`: children that are spared, with all processes below them.
SweepResult sweep(std::span<const int> except, std::chrono::milliseconds limit);

}  // namespace drun::agent
