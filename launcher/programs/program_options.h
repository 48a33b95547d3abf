// core. One of several programs of a job, as the user asked for it.
// Owner:   a value; copy freely.   Thread: any.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace drun {

enum class Device { Auto, Cpu, Gpu, Xpu };
using WorkerCount = std::variant<int, Device>;

struct ProgramOptions {
  // One of the two, the same one in all programs: its workers in the job, or on each node.
  std::optional<int> np{};
  std::optional<WorkerCount> nproc_per_node{};
  std::string role{};
  std::vector<std::string> exports{};  // -x, each as it was written
  std::optional<int> gpus_per_worker{};
  bool module = false;
  bool no_python = false;
  std::string program{};
  std::vector<std::string> arguments{};
  bool operator==(const ProgramOptions&) const = default;
};

}  // namespace drun
