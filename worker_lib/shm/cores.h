// edge. How many cores this process may use at the same time.
//
// Source:  sched_getaffinity, and the quota of its cgroup and those above (cgroup v2's cpu.max;
//          version 1 is not asked). Thread: any.
#pragma once

#include <optional>
#include <string_view>

namespace drun::worker::shm {

// At least 1.
int usable_cores();

// Of cpu.max: "150000 100000" -> 1.5; nothing for "max 100000", and for what is not such a text.
std::optional<double> cores_of_quota(std::string_view cpu_max);

}  // namespace drun::worker::shm
