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

#include <string>
#include <vector>

#include "launcher/placement/gpu_table.h"
#include "launcher/placement/nvml.h"

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
