// edge. Which cores a process may use, and how many at the same time.
//
// Source:  sched_getaffinity, and the quota of the process's cgroup and those above (cgroup v2's
//          cpu.max; version 1 is not read). Thread: any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace drun::worker::shm {

// A set of the node's cores: numbers up to kMostCores.
constexpr std::size_t kMostCores = 2048;
using CoreMask = std::array<std::uint64_t, kMostCores / 64>;

// What this process is bound to; empty where the system does not report it.
CoreMask own_cores();
int count_cores(const CoreMask& cores);
CoreMask operator|(const CoreMask& left, const CoreMask& right);

// How many of these cores the processes of this one's cgroup may use at the same time; at least 1.
// Of an empty set: how many of this process's own.
int usable_cores(const CoreMask& cores = {});

// Of cpu.max: "150000 100000" -> 1.5; nothing for "max 100000", and for what is not such a text.
std::optional<double> cores_of_quota(std::string_view cpu_max);

}  // namespace drun::worker::shm
