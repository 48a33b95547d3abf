#include "launcher/placement/host_gpus.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "launcher/host_text.h"
#include "launcher/small_files.h"

namespace drun {
namespace {

std::optional<int> memory_node(const std::string& root, const std::string& pci_address) {
  const std::optional<long long> node =
      first_number(text_of_file(root + "/sys/bus/pci/devices/" + pci_address + "/numa_node"));
  if (!node || *node < 0) return std::nullopt;  // -1: the firmware does not say
  return static_cast<int>(*node);
}

std::vector<Gpu> nvidia_gpus(const std::string& root) {
  std::set<long long> files;  // minor numbers of the device files
  for (const std::string& name : names_in(root + "/dev")) {
    if (const auto number = nvidia_device_number(name)) files.insert(*number);
  }
  std::vector<Gpu> gpus;
  const std::string folder = root + "/proc/driver/nvidia/gpus/";
  for (const std::string& address : names_in(folder)) {
    const std::string text = text_of_file(folder + address + "/information");
    const auto number = first_number(labelled_value(text, "Device Minor"));
    if (!files.empty() && number && !files.contains(*number)) continue;
    gpus.push_back({.pci_address = address,
                    .uuid = std::string(labelled_value(text, "GPU UUID")),
                    .memory_node = memory_node(root, address)});
  }
  // Sandboxes that show device files without /proc: how many there are is all that is known.
  if (gpus.size() < files.size()) gpus.assign(files.size(), Gpu{});
  return gpus;
}

constexpr const char* kCapabilities = "/proc/driver/nvidia/capabilities/";

// MIG instances as the kernel shows them: gpu<minor>/mig/gi<i>/ci<j>. Their UUIDs only NVML knows;
// CUDA takes these names, too.
std::vector<MigInstance> instances_in_proc(const std::string& root, const std::vector<Gpu>& gpus) {
  std::vector<MigInstance> instances;
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    const std::string& address = gpus[gpu].pci_address;
    const std::string text =
        text_of_file(root + "/proc/driver/nvidia/gpus/" + address + "/information");
    const auto minor = first_number(labelled_value(text, "Device Minor"));
    if (!minor || gpus[gpu].uuid.empty()) continue;
    const std::string folder = root + kCapabilities + "gpu" + std::to_string(*minor) + "/mig/";
    for (const std::string& gi : names_in(folder)) {
      const auto gpu_instance = first_number(gi.starts_with("gi") ? gi.substr(2) : "");
      for (const std::string& ci : names_in(folder + gi)) {
        const auto compute_instance = first_number(ci.starts_with("ci") ? ci.substr(2) : "");
        if (!gpu_instance || !compute_instance) continue;
        instances.push_back({.uuid = "MIG-" + gpus[gpu].uuid + "/" + std::to_string(*gpu_instance) +
                                     "/" + std::to_string(*compute_instance),
                             .gpu = gpu,
                             .gpu_instance = static_cast<int>(*gpu_instance),
                             .compute_instance = static_cast<int>(*compute_instance)});
      }
    }
  }
  return instances;
}

bool has_instances(const std::string& root) {
  for (const std::string& gpu : names_in(root + kCapabilities)) {
    if (!gpu.starts_with("gpu")) continue;
    for (const std::string& name : names_in(root + kCapabilities + gpu + "/mig"))
      if (name.starts_with("gi")) return true;
  }
  return false;
}

// A library that is asked takes its time: only where the files do not tell all.
bool needs_library(const std::string& root, const std::vector<Gpu>& gpus) {
  const bool is_unknown =
      std::any_of(gpus.begin(), gpus.end(), [](const Gpu& gpu) { return gpu.uuid.empty(); });
  std::error_code ec;
  const bool is_wsl = std::filesystem::exists(root + "/dev/dxg", ec);
  return is_unknown || (is_wsl && gpus.empty()) || has_instances(root);
}

InstalledGpus all_nvidia(const std::string& root, const std::string& nvml_library) {
  InstalledGpus found{.gpus = nvidia_gpus(root)};
  if (!needs_library(root, found.gpus)) return found;
  const std::optional<GpuTable> told = ask_nvml(nvml_library);
  if (told && !told->gpus.empty()) {
    found.gpus = told->gpus;
    for (Gpu& gpu : found.gpus) gpu.memory_node = memory_node(root, gpu.pci_address);
    found.divided = told->divided;
    found.instances = told->instances;
    return found;
  }
  found.instances = instances_in_proc(root, found.gpus);
  for (const MigInstance& mig : found.instances)
    if (found.divided.empty() || found.divided.back() != mig.gpu) found.divided.push_back(mig.gpu);
  return found;
}

// A kernel's number of a PCI place: domain, then bus, device and function in one.
std::string pci_address(long long domain, long long place) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%04llx:%02llx:%02llx.%llx", domain & 0xffffffff,
                place >> 8 & 0xff, place >> 3 & 0x1f, place & 7);
  return text.data();
}

std::vector<Gpu> amd_gpus(const std::string& root) {
  const std::string folder = root + "/sys/class/kfd/kfd/topology/nodes/";
  std::vector<Gpu> gpus;
  for (const std::string& name : names_in(folder)) {
    const std::optional<long long> id = first_number(text_of_file(folder + name + "/gpu_id"));
    if (!id || *id == 0) continue;  // a CPU's is 0; one that is not ours cannot be read
    const std::string text = text_of_file(folder + name + "/properties");
    const auto domain = first_number(labelled_value(text, "domain"));
    const auto place = first_number(labelled_value(text, "location_id"));
    Gpu gpu;
    if (place) {
      gpu.pci_address = pci_address(domain.value_or(0), *place);
      gpu.memory_node = memory_node(root, gpu.pci_address);
    }
    gpus.push_back(std::move(gpu));
  }
  std::sort(gpus.begin(), gpus.end(),
            [](const Gpu& a, const Gpu& b) { return a.pci_address < b.pci_address; });
  return gpus;
}

}  // namespace

InstalledGpus look_at_gpus(const std::string& root, const std::string& nvml_library) {
  if (InstalledGpus nvidia = all_nvidia(root, nvml_library); !nvidia.gpus.empty()) return nvidia;
  InstalledGpus amd{.gpus = amd_gpus(root)};
  amd.is_amd = !amd.gpus.empty();
  return amd;
}

}  // namespace drun
