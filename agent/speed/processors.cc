#include "agent/speed/processors.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include "agent/process/proc.h"
#include "rendezvous/base/text.h"

namespace drun::agent {
namespace {

constexpr int kMostProcessors = 1024;
constexpr std::uint64_t kMicroseconds = 1'000'000;

std::uint64_t processor_number(std::string_view text) {
  return leading_number<std::uint64_t>(text).value_or(0);
}

bool exists(const std::string& path) { return ::access(path.c_str(), R_OK) == 0; }

// The cpu.stat files of a cgroup and of those above it.
void add_cpu_stats(const std::string& mount, std::string_view path,
                   std::vector<std::string>& files) {
  for (const std::string& folder : cgroup_folders(mount, path))
    if (exists(folder + "/cpu.stat")) files.push_back(folder + "/cpu.stat");
}

// Processors have numbers, perhaps with gaps.
std::vector<std::string> heat_files(const std::string& root) {
  std::vector<std::string> files;
  std::error_code ec;
  std::filesystem::directory_iterator at(root + "/sys/devices/system/cpu", ec);
  for (; !ec && at != std::filesystem::directory_iterator(); at.increment(ec)) {
    std::string file = at->path().string() + "/thermal_throttle/core_throttle_count";
    if (files.size() < kMostProcessors && exists(file)) files.push_back(std::move(file));
  }
  return files;
}

}  // namespace

void read_proc_stat(std::string_view text, long ticks_per_second, ProcessorTimes& times) {
  std::string_view line = text.substr(0, text.find('\n'));
  if (!line.starts_with("cpu ") || ticks_per_second <= 0) return;
  std::array<std::uint64_t, 8> ticks{};
  std::size_t count = 0;
  line.remove_prefix(4);
  while (!line.empty() && count < ticks.size()) {
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    const std::size_t end = std::min(line.find(' '), line.size());
    if (end > 0) ticks.at(count++) = processor_number(line.substr(0, end));
    line.remove_prefix(end);
  }
  const std::uint64_t us = kMicroseconds / static_cast<std::uint64_t>(ticks_per_second);
  constexpr std::array<std::size_t, 5> kBusy{0, 1, 2, 5, 6};
  for (const std::size_t each : kBusy) times.busy_us += ticks.at(each) * us;
  times.stolen_us += ticks.at(7) * us;
}

void read_cpu_stat(std::string_view text, ProcessorTimes& times) {
  std::uint64_t used_us = 0;
  std::uint64_t throttled_us = 0;
  for (const std::string_view line : split(text, '\n')) {
    const std::size_t blank = std::min(line.find(' '), line.size());
    const std::string_view name = line.substr(0, blank);
    const std::uint64_t value = processor_number(line.substr(std::min(blank + 1, line.size())));
    if (name == "usage_usec") used_us = value;
    if (name == "throttled_usec") throttled_us = value;
    if (name == "throttled_time") throttled_us = value / 1000;
  }
  if (throttled_us == 0) return;  // it has no limit, or does not reach it
  times.throttled_us += throttled_us;
  times.used_us = std::max(times.used_us, used_us);
}

void compare(const ProcessorTimes& before, const ProcessorTimes& now, NodeSpeed& speed) {
  const auto since = [&](std::uint64_t ProcessorTimes::*total) {
    return now.*total > before.*total ? now.*total - before.*total : 0;
  };
  const std::uint64_t busy_us = since(&ProcessorTimes::busy_us);
  // Version 1 does not report the cgroup's own usage in that file.
  const std::uint64_t used_us =
      now.used_us > 0 && before.used_us > 0 ? since(&ProcessorTimes::used_us) : busy_us;
  const auto least_us = static_cast<std::uint64_t>(speed.length.count()) * 1000 / 2;
  const auto permille = [least_us](std::uint64_t part_us, std::uint64_t rest_us) {
    const std::uint64_t whole_us = std::max({part_us + rest_us, least_us, std::uint64_t{1}});
    return static_cast<int>(part_us + rest_us < least_us ? 0 : 1000 * part_us / whole_us);
  };
  speed.stolen_permille = permille(since(&ProcessorTimes::stolen_us), busy_us);
  speed.throttled_permille = permille(since(&ProcessorTimes::throttled_us), used_us);
  speed.is_hot = since(&ProcessorTimes::heat_events) > 0;
}

Processors::Processors(std::string root) : root_(std::move(root)), heat_(heat_files(root_)) {
  const std::string cgroups = read_proc_file(root_ + "/proc/self/cgroup");
  for (const CgroupEntry& entry : parse_cgroups(cgroups)) {
    const auto& names = entry.controllers;
    if (names.empty()) add_cpu_stats(root_ + "/sys/fs/cgroup", entry.path, cpu_stats_);
    if (std::find(names.begin(), names.end(), "cpu") != names.end())
      add_cpu_stats(root_ + "/sys/fs/cgroup/cpu", entry.path, cpu_stats_);
  }
}

ProcessorTimes Processors::read() const {
  ProcessorTimes times;
  read_proc_stat(read_proc_file(root_ + "/proc/stat"), ::sysconf(_SC_CLK_TCK), times);
  for (const std::string& file : cpu_stats_) read_cpu_stat(read_proc_file(file), times);
  for (const std::string& file : heat_) times.heat_events += processor_number(read_proc_file(file));
  return times;
}

}  // namespace drun::agent
