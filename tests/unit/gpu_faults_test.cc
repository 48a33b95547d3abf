// The lines of the kernel log are those of recorded failures (tests/bench/gpu_faults.json has the
// sources), with other addresses, process ids and names.
#include "agent/diagnosis/gpu_faults.h"

#include "tests/support/catch.h"

namespace drun::agent {
namespace {

using FaultLines = std::vector<std::string>;

const std::string kOffTheBus =
    "NVRM: Xid (PCI:0000:c1:00): 79, pid=1234, name=python, GPU has fallen off the bus.";
const std::string kContained =
    "NVRM: Xid (PCI:0000:08:00): 94, pid='<unknown>', name=<unknown>, Contained: SM (0x1). RST: "
    "No, D-RST: No";

}  // namespace

TEST_CASE("an error of the GPU's hardware or driver in the kernel log is recognized") {
  struct Known {
    std::string line;
    const char* words;
    std::optional<int> pid;
    GpuRemedy remedy;
  };
  for (const Known& each :
       {Known{kOffTheBus, "the GPU has fallen off the bus (Xid 79)", 1234, GpuRemedy::Reboot},
        Known{"NVRM: GPU 0000:2b:00.0: GPU has fallen off the bus.",
              "the GPU has fallen off the bus", std::nullopt, GpuRemedy::Reboot},
        Known{kContained, "an uncorrectable error in GPU memory (Xid 94)", std::nullopt,
              GpuRemedy::Restart},
        Known{"[  3.1] NVRM: Xid (0000:03:00): 48, An uncorrectable double bit error (DBE) has "
              "been detected",
              "a double-bit error in GPU memory (Xid 48)", std::nullopt, GpuRemedy::ResetGpu},
        Known{"NVRM: Xid (PCI:0000:00:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6)",
              "an NVLink error (Xid 149)", std::nullopt, GpuRemedy::ResetLink},
        Known{"NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 "
              "(Node Reboot Required)",
              "the driver requires a restart of the machine (Xid 154)", std::nullopt,
              GpuRemedy::Reboot},
        Known{"amdgpu 0000:e3:00.0: amdgpu: uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) "
              "detected!",
              "an uncorrectable error of the GPU (amdgpu)", std::nullopt, GpuRemedy::ResetGpu}}) {
    INFO(each.line);
    const std::optional<GpuFault> found = parse_gpu_fault(each.line);
    REQUIRE(found);
    CHECK(found->words == each.words);
    CHECK(found->pid == each.pid);
    CHECK(found->remedy == each.remedy);
    CHECK_FALSE(advice_of(found->remedy).empty());
  }
}

TEST_CASE("errors that a program causes, and those that the driver corrects, are not the GPU's") {
  const std::string line = GENERATE(
      "", "NVRM: Xid", "NVRM: Xid (PCI:0000:c1:00): ", "NVRM: Xid (PCI:0000:c1:00): x",
      "NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception",
      "NVRM: Xid (PCI:0000:db:00): 31, pid=136, Ch 00000008, intr 00000000. MMU Fault: ENGINE "
      "GRAPHICS GPCCLIENT_T1_10 faulted @ 0x7fd7_90743000",
      "NVRM: Xid (PCI:0000:3d:00): 43, pid=355, Ch 00000008",
      "NVRM: Xid (PCI:0000:dc:00): 45, pid=18, name=python3, Ch 00000001 caused by previous Xid "
      "149",
      "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset "
      "gpu to activate.",
      "NVRM: Xid (PCI:0000:01:00): 109, pid=4124, name=python, Ch 00000028, errorString CTX SWITCH "
      "TIMEOUT",
      "NVRM: Xid (PCI:0000:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 11 (0x0409a0c2)",
      "NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) "
      "to 0x0 (None)",
      "NVRM: loading NVIDIA UNIX Open Kernel Module",
      "amdgpu 0000:03:00.0: amdgpu: GPU reset begin!");
  INFO(line);
  CHECK_FALSE(parse_gpu_fault(line));
}

TEST_CASE("the first lines of a round are kept, and long ones are cut") {
  FaultLines lines;
  add_gpu_fault(lines, "NVRM: Xid (PCI:0000:3d:00): 43, pid=355, Ch 00000008");
  CHECK(lines.empty());
  add_gpu_fault(lines, kOffTheBus + std::string(1000, 'x') + "\n");
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].size() == kGpuFaultLineBytes);
  for (int i = 0; i < 10; ++i) add_gpu_fault(lines, kContained);
  CHECK(lines.size() == kMostGpuFaultLines);
}

TEST_CASE("lines that name another worker of the node do not concern this one") {
  const FaultLines lines{kOffTheBus, kContained};
  CHECK(faults_of_process(lines, 1234, {1233, 1234}) == lines);
  CHECK(faults_of_process(lines, 1233, {1233, 1234}).empty());
  CHECK(faults_of_process({kContained}, 1233, {1233, 1234}) == FaultLines{kContained});
  // In a container, the kernel's process ids are others.
  CHECK(faults_of_process(lines, 7, {7, 8}) == lines);
}

TEST_CASE("a line of the kernel log is read back from a rank's evidence") {
  const std::string line = kernel_log_line(3, kOffTheBus);
  const auto parsed = parse_kernel_log_line(line);
  REQUIRE(parsed);
  CHECK(parsed->node == 3);
  CHECK(parsed->text == kOffTheBus);
  CHECK_FALSE(parse_kernel_log_line(kOffTheBus));
  CHECK_FALSE(parse_kernel_log_line("kernel log of node x: y"));
  CHECK_FALSE(parse_kernel_log_line("kernel log of node 3"));
}

}  // namespace drun::agent
