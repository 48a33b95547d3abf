// core. Which GPUs a process sees: what CUDA_VISIBLE_DEVICES names, and what a container's
// NVIDIA_VISIBLE_DEVICES asked for.
//
// Source:  CUDA's rules for its variable, MIG's user guide ("CUDA Device Enumeration"); the NVIDIA
//          container toolkit's for the other.
// Thread:  any.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/facts/gpus.h"

namespace drun {

// The entries of `list` (CUDA_VISIBLE_DEVICES) that name devices, up to the first that does not, is
// of another kind than the first, or could be several devices: numbers of GPUs, GPU-<uuid>,
// MIG-<uuid>, MIG-GPU-<uuid>/<gi>/<ci>, and beginnings of the UUIDs. None when a device is there
// twice. Without a list: all, each MIG instance in the place of its GPU; then by UUID if there is
// one, else by number. Where the table does not tell UUIDs, any is taken for a device's.
std::vector<std::string> visible_gpu_names(const std::optional<std::string>& list,
                                           const GpuTable& table);

// What NVIDIA_VISIBLE_DEVICES leaves where more is there than it asked for (a container that sees
// the whole /dev): as a list for CUDA_VISIBLE_DEVICES. Absent: all of it. "all", "void" and paths
// say nothing about devices, "none" leaves none; other words are numbers, UUIDs, and <gpu>:<mig>.
std::optional<std::string> container_list(const std::optional<std::string>& asked,
                                          const GpuTable& table);

struct GpuView {
  int count = 0;
  // CUDA_VISIBLE_DEVICES as workers need it, where nobody has set it: a container's wish, or the
  // names of MIG instances, which have no numbers.
  std::optional<std::string> list{};
  bool operator==(const GpuView&) const = default;
};

// `cuda` and `container`: the two variables.
GpuView view_of(const GpuTable& table, const std::optional<std::string>& cuda,
                const std::optional<std::string>& container);

}  // namespace drun
