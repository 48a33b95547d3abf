#include "launcher/placement/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <utility>

#include "launcher/library_function.h"

namespace drun {
namespace {

constexpr int kSuccess = 0;
constexpr unsigned kMostDevices = 1024;
constexpr unsigned kMostInstances = 64;  // of one GPU; there are 7 today

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

// The functions that are asked; those of MIG may be missing in old drivers.
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

// As the kernel writes it: "0000:3b:00.0".
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

// Places without an instance, and those of others, have no handle.
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
    // One that this container was not given is counted, and refused.
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

}  // namespace drun
