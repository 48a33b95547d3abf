#include "launcher/placement/host_gpus.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <set>
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

InstalledGpus look_at_gpus(const std::string& root) {
  if (std::vector<Gpu> gpus = nvidia_gpus(root); !gpus.empty()) return {.gpus = std::move(gpus)};
  InstalledGpus amd{.gpus = amd_gpus(root)};
  amd.is_amd = !amd.gpus.empty();
  return amd;
}

}  // namespace drun
