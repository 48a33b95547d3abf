#include "launcher/facts/host_cpus.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "launcher/facts/files.h"
#include "launcher/facts/host_text.h"

namespace drun {
namespace {

int affinity_cpus() {
  // 16 * CPU_SETSIZE CPUs: with a single cpu_set_t (1024 CPUs) the call fails on larger machines.
  std::array<cpu_set_t, 16> set{};
  if (sched_getaffinity(0, sizeof(set), set.data()) != 0)
    return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  return CPU_COUNT_S(sizeof(set), set.data());
}

using CpuSet = std::array<cpu_set_t, 16>;
constexpr int kMostCpus = 16 * CPU_SETSIZE;

// The mount point of cgroup v1's cpu controller, which has one of two names.
std::string v1_folder(const CgroupFolders& folders, const std::string& cgroups) {
  for (const std::string& name : folders.v1_mounts) {
    if (!names_in(cgroups + name).empty()) return cgroups + name;
  }
  return cgroups + "cpu";
}

}  // namespace

int cpus_within_quota(int cpus, const std::string& root) {
  const std::string cgroups = root + "/sys/fs/cgroup/";
  const CgroupFolders folders = cgroup_folders(text_of_file(root + "/proc/self/cgroup"));
  for (const std::string& folder : folders.v2)
    cpus = cores_within(cpus, quota_cores(text_of_file(cgroups + folder + "/cpu.max")));
  const std::string v1 = v1_folder(folders, cgroups);
  for (const std::string& folder : folders.v1) {
    std::string quota = text_of_file(v1 + folder + "/cpu.cfs_quota_us");
    std::replace(quota.begin(), quota.end(), '\n', ' ');
    cpus =
        cores_within(cpus, quota_cores(quota + text_of_file(v1 + folder + "/cpu.cfs_period_us")));
  }
  return cpus;
}

std::vector<int> affinity_list() {
  CpuSet set{};
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), set.data()) != 0) return cpus;
  const auto count = static_cast<std::size_t>(CPU_COUNT_S(sizeof(set), set.data()));
  for (int cpu = 0; cpus.size() < count; ++cpu)
    if (CPU_ISSET_S(static_cast<std::size_t>(cpu), sizeof(set), set.data())) cpus.push_back(cpu);
  return cpus;
}

Result<void> set_affinity(const std::vector<int>& cpus) {
  CpuSet set{};
  for (const int cpu : cpus)
    if (cpu >= 0 && cpu < kMostCpus)
      CPU_SET_S(static_cast<std::size_t>(cpu), sizeof(set), set.data());
  if (sched_setaffinity(0, sizeof(set), set.data()) == 0) return {};
  return system_error("set the CPU affinity", errno);
}

int usable_cpus() { return cpus_within_quota(affinity_cpus(), ""); }

}  // namespace drun
