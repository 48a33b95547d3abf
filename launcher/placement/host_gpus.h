// edge. Which GPUs this machine has and where they are attached, from the kernel's files; decides
// nothing about who uses them.
//
// Shape:  as CUDA (and HIP) number them when nothing is hidden: in the order of their addresses on
//         the PCI bus. CUDA numbers faster ones first where GPUs differ, unless
//         CUDA_DEVICE_ORDER=PCI_BUS_ID.
//         In a container only those whose device files were handed in.
// Thread: main's.   Errors: none; what cannot be read stays unknown.
#pragma once

#include <string>
#include <vector>

#include "launcher/placement/topology.h"

namespace drun {

struct InstalledGpus {
  std::vector<Gpu> gpus{};
  bool is_amd = false;
};

// Below `root`, for tests: /dev, /proc and /sys are looked for there.
InstalledGpus look_at_gpus(const std::string& root = "");

}  // namespace drun
