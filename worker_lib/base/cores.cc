#include "worker_lib/base/cores.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <string>

namespace drun::worker {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text, '\0');  // does not throw if the file is removed meanwhile
  return text;
}

// "0::/user.slice/x" is the line of version 2 in /proc/self/cgroup.
std::string own_cgroup() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("0::/", 0) == 0) return line.substr(3);
  }
  return "/";
}

double quota() {
  double cores = 1e9;
  for (std::string path = own_cgroup();; path.resize(path.rfind('/'))) {
    const std::string text = read_text("/sys/fs/cgroup" + path + "/cpu.max");
    if (const auto limit = cores_of_quota(text)) cores = std::min(cores, *limit);
    if (path.empty()) return cores;
  }
}

}  // namespace

CoreMask own_cores() {
  // The kernel's set may have more cores than cpu_set_t; it rejects a smaller one.
  CoreMask cores;
  constexpr std::size_t kBits = 8 * sizeof(unsigned long);
  std::array<unsigned long, cores.size() / kBits> words{};
  if (syscall(SYS_sched_getaffinity, 0, sizeof words, words.data()) < 0) return {};
  for (std::size_t i = 0; i < cores.size(); ++i)
    cores[i] = (words[i / kBits] >> i % kBits & 1) != 0;
  return cores;
}

CoreMask online_cores() {
  CoreMask cores;
  const auto count = static_cast<std::size_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  for (std::size_t i = 0; i < std::min(count, cores.size()); ++i) cores.set(i);
  return cores;
}

int usable_cores(const CoreMask& cores) {
  std::size_t count = cores.count();
  if (count == 0) count = own_cores().count();
  if (count == 0) count = online_cores().count();
  return static_cast<int>(std::max(1.0, std::min(quota(), static_cast<double>(count))));
}

std::optional<double> cores_of_quota(std::string_view cpu_max) {
  double quota = 0;
  double period = 0;
  const char* const end = cpu_max.data() + cpu_max.size();
  const auto first = std::from_chars(cpu_max.data(), end, quota);
  if (first.ec != std::errc() || first.ptr == end) return std::nullopt;
  if (std::from_chars(first.ptr + 1, end, period).ec != std::errc()) return std::nullopt;
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

}  // namespace drun::worker
