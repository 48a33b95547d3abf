// core. NVIDIA's GPUs with the MIG instances of those that are divided.
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "launcher/placement/topology.h"

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
