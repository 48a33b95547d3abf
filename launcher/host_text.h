// core. What the system's files and variables about cores and GPUs mean.
// Source:  cgroups(7); CUDA's rules for CUDA_VISIBLE_DEVICES.
// Thread:  any.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace drun {

// Folders whose cpu.max (v2) or cpu.cfs_quota_us (v1) may bound a process, from the text of
// /proc/self/cgroup; its own first, then its parents up to the root.
struct CgroupFolders {
  std::vector<std::string> v2{};  // below /sys/fs/cgroup
  std::vector<std::string> v1{};  // below /sys/fs/cgroup/cpu
};
CgroupFolders cgroup_folders(std::string_view proc_self_cgroup);

// Cores that "max 100000" or "150000 100000" allow; v1's two files are joined by a space first.
// Absent: no bound, or not such a text.
std::optional<double> quota_cores(std::string_view cpu_max);

// At least 1; a quota of 2.5 cores counts as 2.
int cores_within(int cores, std::optional<double> quota);

// How many of `installed` GPUs a CUDA_VISIBLE_DEVICES (or HIP's, ROCR's) leaves: entries up to the
// first that names no device. Absent: all of them.
int visible_gpus(const std::optional<std::string>& list, int installed);

}  // namespace drun
