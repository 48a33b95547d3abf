// edge. How many CPUs this process may use: its affinity, and the CPU quotas of its control groups.
//
// Thread: main's.   Errors: none; what cannot be read bounds nothing.
// Source: sched_getaffinity(2), cgroups(7).
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/result.h"

namespace drun {

int usable_cpus();

// The numbers of the CPUs of this thread's affinity; empty when the kernel does not say.
std::vector<int> affinity_list();
// Gives this thread, and what it starts from now on, those CPUs alone.
Result<void> set_affinity(const std::vector<int>& cpus);

// How many of `cpus` the quotas leave, at least 1. Below `root`, for tests: /proc/self/cgroup and
// /sys/fs/cgroup are looked for there.
int cpus_within_quota(int cpus, const std::string& root);

}  // namespace drun
