// edge. The cores that a process may use, and how many of them at the same time.
//
// Source:  sched_getaffinity(2), and the CPU quotas of the process's cgroup and its parents
//          (cpu.max of cgroup v2; version 1 is not read).
#pragma once

#include <bitset>
#include <optional>
#include <string_view>

namespace drun::worker {

// A set of the node's cores, by number.
using CoreMask = std::bitset<2048>;

// The cores to which this process is bound; empty if the system does not report them.
CoreMask own_cores();
// As many cores as the machine has online, numbered from 0. Its processes may be bound to some.
CoreMask online_cores();

// How many of these cores the processes of this cgroup may use at the same time; at least 1. If
// `cores` is empty: of this process's own cores.
int usable_cores(const CoreMask& cores = {});

// Parses cpu.max: "150000 100000" -> 1.5; nullopt for "max 100000" and invalid text.
std::optional<double> cores_of_quota(std::string_view cpu_max);

}  // namespace drun::worker
