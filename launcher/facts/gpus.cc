#include "launcher/facts/gpus.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "launcher/facts/files.h"
#include "launcher/facts/host_text.h"
#include "rendezvous/base/late_library.h"

namespace drun {
namespace {

constexpr int kSuccess = 0;
constexpr unsigned kMostDevices = 1024;
constexpr unsigned kMostInstances = 64;  // per GPU; the maximum is 7 today

using DeviceHandle = void*;
using UuidText = std::array<char, 96>;

struct PciInfo {
  std::array<char, 16> old_address{};
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned device = 0;
  unsigned ids[2] = {};
  std::array<char, 32> address{};
};
static_assert(sizeof(PciInfo) == 68);

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};

// The functions in use. Old drivers may lack those for MIG.
struct Functions {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*device_at)(unsigned, DeviceHandle*) = nullptr;
  int (*uuid)(DeviceHandle, char*, unsigned) = nullptr;
  int (*pci_info)(DeviceHandle, PciInfo*) = nullptr;
  int (*mig_mode)(DeviceHandle, unsigned*, unsigned*) = nullptr;
  int (*most_instances)(DeviceHandle, unsigned*) = nullptr;
  int (*instance_at)(DeviceHandle, unsigned, DeviceHandle*) = nullptr;
  int (*gpu_instance)(DeviceHandle, unsigned*) = nullptr;
  int (*compute_instance)(DeviceHandle, unsigned*) = nullptr;

  bool are_enough() const { return init && shutdown && count && device_at && uuid && pci_info; }
  bool know_mig() const { return mig_mode && most_instances && instance_at; }
};

Functions functions_of(void* library) {
  Functions found;
  find_function(library, "nvmlInit_v2", found.init);
  find_function(library, "nvmlShutdown", found.shutdown);
  find_function(library, "nvmlDeviceGetCount_v2", found.count);
  find_function(library, "nvmlDeviceGetHandleByIndex_v2", found.device_at);
  find_function(library, "nvmlDeviceGetUUID", found.uuid);
  find_function(library, "nvmlDeviceGetPciInfo_v3", found.pci_info);
  find_function(library, "nvmlDeviceGetMigMode", found.mig_mode);
  find_function(library, "nvmlDeviceGetMaxMigDeviceCount", found.most_instances);
  find_function(library, "nvmlDeviceGetMigDeviceHandleByIndex", found.instance_at);
  find_function(library, "nvmlDeviceGetGpuInstanceId", found.gpu_instance);
  find_function(library, "nvmlDeviceGetComputeInstanceId", found.compute_instance);
  return found;
}

std::string uuid_of(const Functions& nvml, DeviceHandle device) {
  UuidText text{};
  if (nvml.uuid(device, text.data(), static_cast<unsigned>(text.size())) != kSuccess) return "";
  text.back() = '\0';
  return text.data();
}

// In the kernel's format: "0000:3b:00.0".
std::string pci_address_of(const Functions& nvml, DeviceHandle device) {
  PciInfo info;
  if (nvml.pci_info(device, &info) != kSuccess) return "";
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.0", info.domain, info.bus, info.device);
  return text.data();
}

std::optional<int> number_of(int (*ask)(DeviceHandle, unsigned*), DeviceHandle device) {
  unsigned number = 0;
  if (ask == nullptr || ask(device, &number) != kSuccess) return std::nullopt;
  return static_cast<int>(number);
}

// An index without an instance, or with one of another container, has no handle.
void add_instances(GpuTable& table, const Functions& nvml, DeviceHandle device) {
  unsigned current = 0;
  unsigned pending = 0;
  unsigned most = 0;
  if (!nvml.know_mig() || nvml.mig_mode(device, &current, &pending) != kSuccess) return;
  if (current != 1) return;
  table.divided.push_back(table.gpus.size() - 1);
  if (nvml.most_instances(device, &most) != kSuccess) return;
  for (unsigned i = 0; i < std::min(most, kMostInstances); ++i) {
    DeviceHandle instance = nullptr;
    if (nvml.instance_at(device, i, &instance) != kSuccess) continue;
    MigInstance mig{.uuid = uuid_of(nvml, instance),
                    .gpu = table.gpus.size() - 1,
                    .gpu_instance = number_of(nvml.gpu_instance, instance),
                    .compute_instance = number_of(nvml.compute_instance, instance)};
    if (!mig.uuid.empty()) table.instances.push_back(std::move(mig));
  }
}

GpuTable table_of(const Functions& nvml) {
  GpuTable table;
  unsigned count = 0;
  if (nvml.count(&count) != kSuccess) return table;
  for (unsigned i = 0; i < std::min(count, kMostDevices); ++i) {
    // NVML counts GPUs that this container was not given, but returns no handle for them.
    DeviceHandle device = nullptr;
    if (nvml.device_at(i, &device) != kSuccess) continue;
    table.gpus.push_back(
        {.pci_address = pci_address_of(nvml, device), .uuid = uuid_of(nvml, device)});
    add_instances(table, nvml, device);
  }
  return table;
}

}  // namespace

std::optional<GpuTable> ask_nvml(const std::string& library) {
  const std::unique_ptr<void, CloseLibrary> opened(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!opened) return std::nullopt;
  const Functions nvml = functions_of(opened.get());
  if (!nvml.are_enough() || nvml.init() != kSuccess) return std::nullopt;
  GpuTable table = table_of(nvml);
  nvml.shutdown();
  return table;
}

namespace {

std::optional<int> memory_node(const std::string& root, const std::string& pci_address) {
  const std::optional<long long> node =
      first_number(text_of_file(root + "/sys/bus/pci/devices/" + pci_address + "/numa_node"));
  if (!node || *node < 0) return std::nullopt;  // -1: unknown to the firmware
  return static_cast<int>(*node);
}

std::vector<Gpu> nvidia_gpus(const std::string& root) {
  std::set<long long> files;  // minor numbers of device files
  for (const std::string& name : names_in(root + "/dev", "nvidia")) {
    if (const auto number = nvidia_device_number(name)) files.insert(*number);
  }
  std::vector<Gpu> gpus;
  const std::string folder = root + "/proc/driver/nvidia/gpus/";
  for (const std::string& address : names_in(folder)) {
    const std::string text = text_of_file(folder + address + "/information");
    const auto number = first_number(labeled_value(text, "Device Minor"));
    if (!files.empty() && number && !files.contains(*number)) continue;
    gpus.push_back({.pci_address = address,
                    .uuid = std::string(labeled_value(text, "GPU UUID")),
                    .memory_node = memory_node(root, address)});
  }
  // Sandboxes may show device files without /proc; then only the number of GPUs is known.
  if (gpus.size() < files.size()) gpus.assign(files.size(), Gpu{});
  return gpus;
}

constexpr const char* kCapabilities = "/proc/driver/nvidia/capabilities/";

// MIG instances in the kernel's files: gpu<minor>/mig/gi<i>/ci<j>. Only NVML knows their UUIDs, but
// CUDA accepts these names too.
std::vector<MigInstance> instances_in_proc(const std::string& root, const std::vector<Gpu>& gpus) {
  std::vector<MigInstance> instances;
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    const std::string& address = gpus[gpu].pci_address;
    const std::string text =
        text_of_file(root + "/proc/driver/nvidia/gpus/" + address + "/information");
    const auto minor = first_number(labeled_value(text, "Device Minor"));
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

// NVML is slow; use it only if the files are not sufficient.
bool needs_library(const std::string& root, const std::vector<Gpu>& gpus) {
  const bool is_unknown =
      std::any_of(gpus.begin(), gpus.end(), [](const Gpu& gpu) { return gpu.uuid.empty(); });
  std::error_code ec;
  const bool is_wsl = std::filesystem::exists(root + "/dev/dxg", ec);
  return is_unknown || (is_wsl && gpus.empty()) || has_instances(root);
}

GpuTable all_nvidia(const std::string& root, const std::string& nvml_library) {
  GpuTable found{.gpus = nvidia_gpus(root)};
  if (!needs_library(root, found.gpus)) return found;
  if (std::optional<GpuTable> table = ask_nvml(nvml_library); table && !table->gpus.empty()) {
    for (Gpu& gpu : table->gpus) gpu.memory_node = memory_node(root, gpu.pci_address);
    return *std::move(table);
  }
  found.instances = instances_in_proc(root, found.gpus);
  for (const MigInstance& mig : found.instances)
    if (found.divided.empty() || found.divided.back() != mig.gpu) found.divided.push_back(mig.gpu);
  return found;
}

// Formats a PCI location from the kernel's numbers: the domain, and bus, device and function packed
// into `place`.
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
    if (!id || *id == 0) continue;  // 0 for a CPU; unreadable if outside the container
    const std::string text = text_of_file(folder + name + "/properties");
    const auto domain = first_number(labeled_value(text, "domain"));
    const auto place = first_number(labeled_value(text, "location_id"));
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

GpuTable look_at_gpus(const std::string& root, const std::string& nvml_library) {
  if (GpuTable nvidia = all_nvidia(root, nvml_library); !nvidia.gpus.empty()) return nvidia;
  std::vector<Gpu> amd = amd_gpus(root);
  const bool is_amd = !amd.empty();
  return {.gpus = std::move(amd), .is_amd = is_amd};
}

}  // namespace drun
