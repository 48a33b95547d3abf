// edge. Samples the workers' processes for signs of activity, in one walk through /proc.
// Cost: about 5 us per process of the machine and 10 us per process of the workers.
// Processes that cannot be read are ignored. May be called on any thread.
#pragma once

#include <vector>

#include "agent/hang/hang.h"

namespace drun::agent {

// Returns one sample per pid; pid 0 means that the worker has ended. The caller adds output and
// heartbeats.
std::vector<hang::Sample> look_for_life(const std::vector<int>& pids);

}  // namespace drun::agent
