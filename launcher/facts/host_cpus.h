// edge. How many CPUs this process may use: its affinity, and the CPU quotas of its control groups.
//
// Thread: main's.   Errors: none; what cannot be read bounds nothing.
// Source: sched_getaffinity(2), cgroups(7).
#pragma once

#include <string>

namespace drun {

int usable_cpus();

// How many of `cpus` the quotas leave, at least 1. Below `root`, for tests: /proc/self/cgroup and
// /sys/fs/cgroup are looked for there.
int cpus_within_quota(int cpus, const std::string& root);

}  // namespace drun
