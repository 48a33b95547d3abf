// edge. The last resort: kills and reaps everything below this process, until nothing is left.
//
// Without sight of /proc (descendants.h) it kills the workers' process groups, which share_groups
// remembers; what has left them is not found then.
//
// Safety:  usable in a signal handler; never throws, allocates nothing but by mmap.
// Owner:   guardian. Reaps all children, since the caller ends next.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <span>

namespace drun::agent {

// Long enough for processes with much memory to be torn down by the kernel.
constexpr std::chrono::seconds kSweepLimit{5};

struct SweepResult {
  // Those that did not die within the limit: stuck in the kernel.
  std::array<int, 16> pids{};
  std::size_t count = 0;  // at most as many as there is room for
  // Only process groups could be killed, and something may be left.
  bool was_blind = false;
};

// Makes room for the groups of this process and of those that it forks. Before the first fork;
// where there is no memory for it, remember_group does nothing.
void share_groups();
// A worker leads this group. Only the last 4,096 are kept.
void remember_group(int group);

// `except`: these children and what is below them are left alone.
SweepResult sweep(std::span<const int> except, std::chrono::milliseconds limit);

}  // namespace drun::agent
