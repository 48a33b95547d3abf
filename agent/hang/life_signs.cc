#include "agent/hang/life_signs.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <string>

#include "agent/process/descendants.h"
#include "agent/stacks/proc_text.h"
#include "rendezvous/base/unique_fd.h"

namespace drun::agent {
namespace {

constexpr std::size_t kMostProcesses = 256;  // of a worker

std::string read_proc(int pid, const char* name) {
  const UniqueFd file(
      ::open(("/proc/" + std::to_string(pid) + "/" + name).c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> text;
  const ssize_t size = file ? ::read(file.get(), text.data(), text.size()) : 0;
  return size <= 0 ? "" : std::string(text.data(), static_cast<std::size_t>(size));
}

hang::Sample sample_of(const std::vector<ProcessStat>& tree) {
  hang::Sample sample;
  bool is_awake = false;
  for (const ProcessStat& process : tree) {
    // FNV-1a over the pids in the order of /proc, to detect a change of the set.
    sample.processes = (sample.processes ^ static_cast<std::uint64_t>(process.pid)) * 0x100000001B3;
    sample.cpu_ticks += parse_cpu_ticks(read_proc(process.pid, "stat")).value_or(0);
    if (process.state == 'Z') continue;
    std::string channel = read_proc(process.pid, "wchan");
    if (channel.empty() || channel == "0") is_awake = true;
    if (&process == &tree.front()) sample.channel = std::move(channel);
  }
  if (is_awake) sample.channel.clear();
  sample.is_running = !tree.empty() && tree.front().state != 'Z';
  sample.is_stopped = !tree.empty() && (tree.front().state == 'T' || tree.front().state == 't');
  return sample;
}

}  // namespace

std::vector<hang::Sample> look_for_life(const std::vector<int>& pids) {
  const Descendants found;
  std::vector<hang::Sample> samples;
  for (const std::vector<ProcessStat>& tree : trees_below(pids, found.all(), kMostProcesses))
    samples.push_back(sample_of(tree));
  return samples;
}

}  // namespace drun::agent
