// edge. The GPUs of this machine and the NUMA nodes that they are attached to. Reads the kernel's
// files, and asks NVIDIA's library only where the files are not sufficient: for MIG instances, and
// in containers without the driver's /proc. Fields that cannot be read stay unset.
//
// GPUs are in the order in which CUDA and HIP number them if none is hidden, which is PCI bus
// order. If the GPUs differ, CUDA numbers faster ones first unless CUDA_DEVICE_ORDER=PCI_BUS_ID. A
// container sees only the GPUs whose device files it was given.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "launcher/facts/topology.h"

namespace drun {

// --- NVIDIA GPUs, and the MIG instances of partitioned ones

// A process sees an instance as a separate GPU and can use only one.
struct MigInstance {
  std::string uuid{};   // "MIG-..."
  std::size_t gpu = 0;  // index of the GPU that it is a part of
  std::optional<int> gpu_instance{};
  std::optional<int> compute_instance{};
  bool operator==(const MigInstance&) const = default;
};

struct GpuTable {
  std::vector<Gpu> gpus{};             // in CUDA's order with none hidden
  std::vector<std::size_t> divided{};  // indices of GPUs in MIG mode, usable by instance only
  std::vector<MigInstance> instances{};
  bool is_amd = false;
  bool operator==(const GpuTable&) const = default;
};

// --- Query of the driver's management library (NVML)
//
// The library is loaded on each call, not linked. The order is NVML's (by PCI address); a container
// sees only the GPUs that it was given. A call takes milliseconds, or up to seconds without
// persistence mode, so do not call it on every start. See NVML's documentation, "Device Queries"
// and "Multi Instance GPU Management".

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

// `library` is a path, or a name for ld.so(8) to search. Leaves `memory_node` unset. Returns
// nullopt if the library is missing or does not work here.
std::optional<GpuTable> ask_nvml(const std::string& library = kNvmlLibrary);

// --- All GPUs of the machine

// Tests pass a `root` that contains /dev, /proc and /sys, and a substitute for NVIDIA's library.
GpuTable look_at_gpus(const std::string& root = "", const std::string& nvml_library = kNvmlLibrary);

}  // namespace drun
