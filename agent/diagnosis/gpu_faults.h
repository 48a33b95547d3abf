// core. Errors of GPUs in the kernel log: Xids of NVIDIA's driver, and those of amdgpu. Only errors
// that mean a fault of the hardware, its firmware or its driver count, not those that a program
// causes, such as an illegal access to memory.
//
// A node gives each of its workers the lines that may concern it. They travel in the traceback of a
// failure, or among the lines of a rank's stacks.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace drun::agent {

enum class GpuRemedy {
  Restart,  // of the program; the GPU works on
  ResetGpu,
  ResetLink,  // of all GPUs that share an NVLink
  Reboot,
};

struct GpuFault {
  std::string words{};       // "the GPU has fallen off the bus (Xid 79)"
  std::optional<int> pid{};  // of the process that used the GPU, in the first pid namespace
  GpuRemedy remedy = GpuRemedy::ResetGpu;
};

// From the text of a record. Absent: it is about something else.
std::optional<GpuFault> parse_gpu_fault(std::string_view line);

constexpr std::size_t kMostGpuFaultLines = 4;  // of a round
constexpr std::size_t kGpuFaultLineBytes = 160;

// Adds `text` if it is of a fault, cut, while there is room.
void add_gpu_fault(std::vector<std::string>& lines, std::string_view text);

// `lines` if one of them names the process, or none of them names one of `pids`, which are the
// node's workers (0: has ended). Otherwise they are about another worker.
std::vector<std::string> faults_of_process(const std::vector<std::string>& lines, int pid,
                                           const std::vector<int>& pids);

// "kernel log of node 3: NVRM: Xid ..."
std::string kernel_log_line(int node, std::string_view text);
struct KernelLogLine {
  int node = 0;
  std::string_view text{};
};
std::optional<KernelLogLine> parse_kernel_log_line(std::string_view line);

// The advice, as a sentence without a period, and whether it is to leave out the node.
std::string advice_of(GpuRemedy remedy);
bool excludes_node(GpuRemedy remedy);

}  // namespace drun::agent
