// core. Parses the system files that describe CPUs and GPUs. See cgroups(7).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace drun {

// Folders whose cpu.max (v2) or cpu.cfs_quota_us (v1) may limit a process, from the text of
// /proc/self/cgroup: its own cgroup first, then the parents up to the root.
struct CgroupFolders {
  std::vector<std::string> v2{};         // below /sys/fs/cgroup
  std::vector<std::string> v1{};         // below /sys/fs/cgroup/<v1_mount>
  std::vector<std::string> v1_mounts{};  // "cpu,cpuacct", "cpu": use the one that exists
};
CgroupFolders cgroup_folders(std::string_view proc_self_cgroup);

// CPUs allowed by "max 100000" or "150000 100000"; join v1's two files with a space. Absent: no
// limit, or malformed.
std::optional<double> quota_cores(std::string_view cpu_max);

// At least 1; a quota of 2.5 cores counts as 2.
int cores_within(int cores, std::optional<double> quota);

// The number of a device file: 3 for "nvidia3"; absent for others, such as nvidiactl and
// nvidia-uvm.
std::optional<int> nvidia_device_number(std::string_view file);

// The rest of the line after `label`, as in "GPU UUID: \t GPU-..." or "location_id 256"; or empty.
std::string_view labeled_value(std::string_view text, std::string_view label);

// The number at the start of `text`, after white space: "-1\n".
std::optional<long long> first_number(std::string_view text);

}  // namespace drun
