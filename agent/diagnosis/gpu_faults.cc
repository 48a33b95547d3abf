#include "agent/diagnosis/gpu_faults.h"

#include <algorithm>
#include <array>

#include "rendezvous/base/bytes.h"
#include "rendezvous/base/text.h"

namespace drun::agent {
namespace {

struct Xid {
  int code = 0;
  const char* what = "";
  GpuRemedy remedy = GpuRemedy::ResetGpu;
  // The code counts only with this text. Empty: always.
  std::string_view needs{};
};

// From NVIDIA's catalog, https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html: the
// codes for which its immediate action is to reset the GPU or the machine, or to examine NVLink;
// and 94, a memory error that ends only the program. Left out on purpose:
//   13, 31, 43, 68, 69    mostly errors of the program
//   45                    the consequence of another error, or of the program's end
//   109                   a kernel that does not yield: mostly the program, as NVIDIA's device
//   plugin
//                         for Kubernetes has it (ignored, with 13, 31, 43, 45 and 68)
//   63, 92, 121, 137      recorded or corrected; the catalog says to ignore them
constexpr std::array kXids{
    Xid{46, "the GPU stopped processing"},
    Xid{48, "a double-bit error in GPU memory"},
    Xid{62, "the GPU's power controller halted"},
    Xid{64, "a defective row of GPU memory could not be replaced"},
    Xid{74, "an NVLink error", GpuRemedy::ResetLink},
    Xid{79, "the GPU has fallen off the bus", GpuRemedy::Reboot},
    Xid{94, "an uncorrectable error in GPU memory", GpuRemedy::Restart},
    Xid{95, "an uncorrectable error in GPU memory that affects all programs"},
    Xid{110, "a security fault of the GPU"},
    Xid{119, "the GPU's firmware (GSP) does not answer"},
    Xid{120, "an error of the GPU's firmware (GSP)"},
    Xid{136, "an NVLink that cannot be trained", GpuRemedy::ResetLink},
    Xid{140, "an uncorrectable error in GPU memory"},
    Xid{143, "the GPU cannot be initialized"},
    Xid{144, "an NVLink error", GpuRemedy::ResetLink, " Fatal"},
    Xid{145, "an NVLink error", GpuRemedy::ResetLink, " Fatal"},
    Xid{146, "an NVLink error", GpuRemedy::ResetLink, " Fatal"},
    Xid{147, "an NVLink error", GpuRemedy::ResetLink, " Fatal"},
    Xid{148, "an NVLink error", GpuRemedy::ResetLink, " Fatal"},
    Xid{149, "an NVLink error", GpuRemedy::ResetLink, " Fatal"},
    Xid{150, "an NVLink error", GpuRemedy::ResetLink, " Fatal"},
    Xid{154, "the driver requires a reset of the GPU", GpuRemedy::ResetGpu,
        "to 0x1 (GPU Reset Required"},
    Xid{154, "the driver requires a restart of the machine", GpuRemedy::Reboot,
        "to 0x2 (Node Reboot Required"},
    Xid{158, "a fatal timeout of the GPU"},
};

bool mentions(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

std::optional<int> number_behind(std::string_view text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  if (at == text.npos) return std::nullopt;
  const auto number = leading_number<int>(text.substr(at + mark.size()));
  return number && *number >= 0 ? number : std::nullopt;
}

constexpr std::string_view kKernelLogMark = "kernel log of node ";

}  // namespace

// "NVRM: Xid (PCI:0000:c1:00): 79, pid=1234, name=python, GPU has fallen off the bus."
// "amdgpu 0000:e3:00.0: amdgpu: uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!"
std::optional<GpuFault> parse_gpu_fault(std::string_view line) {
  if (mentions(line, "amdgpu ") && mentions(line, "uncorrectable hardware error("))
    return GpuFault{.words = "an uncorrectable error of the GPU (amdgpu)"};
  const std::size_t begin = line.find("NVRM: ");
  if (begin == line.npos) return std::nullopt;
  line.remove_prefix(begin);
  constexpr std::string_view kXid = "NVRM: Xid (";
  if (!line.starts_with(kXid)) {
    if (!mentions(line, "fallen off the bus")) return std::nullopt;
    return GpuFault{.words = "the GPU has fallen off the bus", .remedy = GpuRemedy::Reboot};
  }
  const std::optional<int> code = number_behind(line, "): ");
  for (const Xid& xid : kXids) {
    if (xid.code != code || !mentions(line, xid.needs)) continue;
    return GpuFault{.words = std::string(xid.what) + " (Xid " + std::to_string(xid.code) + ")",
                    .pid = number_behind(line, " pid="),
                    .remedy = xid.remedy};
  }
  return std::nullopt;
}

void add_gpu_fault(std::vector<std::string>& lines, std::string_view text) {
  if (lines.size() >= kMostGpuFaultLines || !parse_gpu_fault(text)) return;
  lines.emplace_back(rendezvous::cut_text(trimmed(text), kGpuFaultLineBytes));
}

std::vector<std::string> faults_of_process(const std::vector<std::string>& lines, int pid,
                                           const std::vector<int>& pids) {
  bool is_own = false;
  bool is_anothers = false;
  for (const std::string& line : lines) {
    const std::optional<GpuFault> fault = parse_gpu_fault(line);
    if (!fault || fault->pid.value_or(0) == 0) continue;
    if (fault->pid == pid)
      is_own = true;
    else if (std::find(pids.begin(), pids.end(), *fault->pid) != pids.end())
      is_anothers = true;
  }
  return is_anothers && !is_own ? std::vector<std::string>() : lines;
}

std::string kernel_log_line(int node, std::string_view text) {
  return std::string(kKernelLogMark) + std::to_string(node) + ": " + std::string(text);
}

std::optional<KernelLogLine> parse_kernel_log_line(std::string_view line) {
  const std::size_t colon = line.find(": ");
  const std::optional<int> node = number_behind(line, kKernelLogMark);
  if (!line.starts_with(kKernelLogMark) || !node || colon == line.npos) return std::nullopt;
  return KernelLogLine{.node = *node, .text = line.substr(colon + 2)};
}

std::string advice_of(GpuRemedy remedy) {
  switch (remedy) {
    case GpuRemedy::Restart:
      return "the GPU works on without the defective memory; reset it when the node is idle";
    case GpuRemedy::ResetGpu:
      return "exclude the node until its GPU is reset (nvidia-smi --gpu-reset, or a reboot)";
    case GpuRemedy::ResetLink:
      return "exclude the node until all its GPUs are reset; nvidia-smi nvlink -e shows the errors "
             "of each link";
    case GpuRemedy::Reboot:
      return "exclude the node until it is rebooted; check the GPU's seat, power and temperature";
  }
  return "";
}

bool excludes_node(GpuRemedy remedy) { return remedy != GpuRemedy::Restart; }

}  // namespace drun::agent
