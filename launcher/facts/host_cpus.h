// edge. CPUs that this process may use, by its affinity and the CPU quotas of its cgroups. A limit
// that cannot be read is ignored. See sched_getaffinity(2), cgroups(7).
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/result.h"

namespace drun {

int usable_cpus();

// CPU numbers in this thread's affinity mask; empty if unknown.
std::vector<int> affinity_list();
// Sets the affinity of this thread and of the processes and threads that it creates later.
Result<void> set_affinity(const std::vector<int>& cpus);

// The part of `cpus` that the quotas allow, at least 1. Reads /proc/self/cgroup and /sys/fs/cgroup
// below `root` (for tests).
int cpus_within_quota(int cpus, const std::string& root);

}  // namespace drun
