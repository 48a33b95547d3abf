// core. The GPUs that a process sees, according to CUDA_VISIBLE_DEVICES and a container's
// NVIDIA_VISIBLE_DEVICES. See CUDA's rules for its variable, the MIG user guide ("CUDA Device
// Enumeration"), and the documentation of the NVIDIA container toolkit.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/facts/gpus.h"

namespace drun {

// The entries of `list` (CUDA_VISIBLE_DEVICES) that name devices: numbers of GPUs, GPU-<uuid>,
// MIG-<uuid>, MIG-GPU-<uuid>/<gi>/<ci>, and prefixes of the UUIDs. Stops at the first entry that
// names no device, is ambiguous, or differs in kind from the first one. Empty if a device occurs
// twice.
//
// Without a list: every GPU, by UUID if known or else by number, with MIG instances in the place of
// their GPU. If the table has no UUIDs, any UUID counts as a device.
std::vector<std::string> visible_gpu_names(const std::optional<std::string>& list,
                                           const GpuTable& table);

// The same if nothing is known of the GPUs: every number and UUID counts as a device.
std::vector<std::string> trusted_gpu_names(std::string_view list);

// A table of GPUs of which only the number is known.
GpuTable unnamed_gpus(std::size_t count);

// Translates NVIDIA_VISIBLE_DEVICES into a CUDA_VISIBLE_DEVICES list, for a container that sees
// more devices than it asked for (such as all of /dev). Absent: no restriction. "all", "void" and
// paths do not restrict devices, and "none" hides all; other words are numbers, UUIDs, or
// <gpu>:<mig>.
std::optional<std::string> container_list(const std::optional<std::string>& asked,
                                          const GpuTable& table);

struct GpuView {
  int count = 0;
  // The CUDA_VISIBLE_DEVICES that workers need if it is not set: the container's devices, or the
  // names of MIG instances, which have no numbers.
  std::optional<std::string> list{};
  bool operator==(const GpuView&) const = default;
};

// `cuda` and `container` are the values of CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES.
GpuView view_of(const GpuTable& table, const std::optional<std::string>& cuda,
                const std::optional<std::string>& container);

// The GPUs for entries of CUDA_VISIBLE_DEVICES: numbers, UUIDs or prefixes of them,
// MIG-GPU-<uuid>/... A name that matches none gives an empty Gpu; it gets the memory node if all
// GPUs share one.
std::vector<Gpu> gpus_named(const std::vector<std::string>& names, const std::vector<Gpu>& gpus);

}  // namespace drun
