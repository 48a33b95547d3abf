// edge. NVIDIA's GPUs and the MIG instances of them, as the driver's management library (NVML)
// tells of them; decides nothing. The library is looked for when it is asked, not linked.
//
// Shape:   in NVML's order, which is that of PCI addresses; in a container only what it was given.
// Costs:   milliseconds, up to seconds where nobody keeps the driver awake: not for every start.
// Thread:  main's.   Errors: absent: there is no such library, or it does not work here.
// Source:  NVML's documentation, "Device Queries" and "Multi Instance GPU Management".
#pragma once

#include <optional>
#include <string>

#include "launcher/placement/gpu_table.h"

namespace drun {

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

// `library`: a path, or a name to be looked for as ld.so(8) does. Memory nodes are not filled in.
std::optional<GpuTable> ask_nvml(const std::string& library = kNvmlLibrary);

}  // namespace drun
