// edge. Looks at workers' processes for signs of life, by one walk through /proc.
// Cost:    about 5 us a process of the machine and 10 us a process of the workers.
// Thread:  any.   Errors: what cannot be read says nothing.
#pragma once

#include <vector>

#include "agent/hang/hang.h"

namespace drun::agent {

// By local rank; pid 0: has ended. Output and heartbeats are the caller's to add.
std::vector<hang::Sample> look_for_life(const std::vector<int>& pids);

}  // namespace drun::agent
