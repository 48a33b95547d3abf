// edge. Which GPUs this machine has and where they are attached, from the kernel's files, and from
// NVIDIA's library where those do not tell enough: MIG instances, containers without the driver's
// /proc. Decides nothing about who uses them.
//
// Shape:  as CUDA (and HIP) number them when nothing is hidden: in the order of their addresses on
//         the PCI bus. CUDA numbers faster ones first where GPUs differ, unless
//         CUDA_DEVICE_ORDER=PCI_BUS_ID.
//         In a container only those whose device files were handed in.
// Thread: main's.   Errors: none; what cannot be read stays unknown.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "launcher/facts/topology.h"

// core. NVIDIA's GPUs with the MIG instances of those that are divided.
// Owner:   values; copy freely.   Thread: any.

namespace drun {

// To a process a GPU of its own; it can use only one of them.
struct MigInstance {
  std::string uuid{};   // "MIG-..."
  std::size_t gpu = 0;  // whose part it is, by index
  std::optional<int> gpu_instance{};
  std::optional<int> compute_instance{};
  bool operator==(const MigInstance&) const = default;
};

struct GpuTable {
  std::vector<Gpu> gpus{};             // as CUDA numbers them when nothing is hidden
  std::vector<std::size_t> divided{};  // of them those in MIG mode: only instances can be used
  std::vector<MigInstance> instances{};
  bool operator==(const GpuTable&) const = default;
};

}  // namespace drun

// edge. NVIDIA's GPUs and the MIG instances of them, as the driver's management library (NVML)
// tells of them; decides nothing. The library is looked for when it is asked, not linked.
//
// Shape:   in NVML's order, which is that of PCI addresses; in a container only what it was given.
// Costs:   milliseconds, up to seconds where nobody keeps the driver awake: not for every start.
// Thread:  main's.   Errors: absent: there is no such library, or it does not work here.
// Source:  NVML's documentation, "Device Queries" and "Multi Instance GPU Management".

namespace drun {

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

// `library`: a path, or a name to be looked for as ld.so(8) does. Memory nodes are not filled in.
std::optional<GpuTable> ask_nvml(const std::string& library = kNvmlLibrary);

}  // namespace drun

namespace drun {

struct InstalledGpus {
  std::vector<Gpu> gpus{};
  bool is_amd = false;
  std::vector<std::size_t> divided{};    // as GpuTable's
  std::vector<MigInstance> instances{};  // likewise

  GpuTable table() const { return {.gpus = gpus, .divided = divided, .instances = instances}; }
};

// For tests: /dev, /proc and /sys are looked for below `root`; NVIDIA's library.
InstalledGpus look_at_gpus(const std::string& root = "",
                           const std::string& nvml_library = kNvmlLibrary);

}  // namespace drun
