// core. What the system's files and variables about cores and GPUs mean.
// Source:  cgroups(7); CUDA's rules for CUDA_VISIBLE_DEVICES, as torch.cuda reads them.
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
  std::vector<std::string> v2{};         // below /sys/fs/cgroup
  std::vector<std::string> v1{};         // below /sys/fs/cgroup/<v1_mount>
  std::vector<std::string> v1_mounts{};  // "cpu,cpuacct", "cpu": whichever is there
};
CgroupFolders cgroup_folders(std::string_view proc_self_cgroup);

// Cores that "max 100000" or "150000 100000" allow; v1's two files are joined by a space first.
// Absent: no bound, or not such a text.
std::optional<double> quota_cores(std::string_view cpu_max);

// At least 1; a quota of 2.5 cores counts as 2.
int cores_within(int cores, std::optional<double> quota);

// The entries of a CUDA_VISIBLE_DEVICES (or HIP's, ROCR's) that name devices: those up to the first
// that does not, or is of another kind than the first (numbers, GPU-<uuid>, MIG-<uuid>); none when
// one is there twice. Absent list: the numbers of all. Absent `installed`: any number is a
// device's.
std::vector<std::string> visible_gpu_names(const std::optional<std::string>& list,
                                           std::optional<int> installed);
int visible_gpus(const std::optional<std::string>& list, int installed);

// The number of a device file: 3 for "nvidia3"; absent for nvidiactl, nvidia-uvm and the rest.
std::optional<int> nvidia_device_number(std::string_view file);

// What stands behind `label` on its line, "GPU UUID: \t GPU-..." or "location_id 256"; else empty.
std::string_view labelled_value(std::string_view text, std::string_view label);

// The number that `text` begins with, white space aside: "-1\n".
std::optional<long long> first_number(std::string_view text);

}  // namespace drun
