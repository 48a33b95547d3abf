#include "launcher/facts/host_text.h"

#include <algorithm>
#include <cmath>

#include "rendezvous/base/text.h"

namespace drun {
namespace {

std::vector<std::string> upwards(std::string_view path) {
  std::vector<std::string> folders;
  while (path.size() > 1) {
    folders.emplace_back(path);
    path = path.substr(0, path.rfind('/'));
  }
  folders.emplace_back("");
  return folders;
}

}  // namespace

CgroupFolders cgroup_folders(std::string_view proc_self_cgroup) {
  CgroupFolders folders;
  for (const std::string_view line : split(proc_self_cgroup, '\n')) {
    const std::size_t first = line.find(':');
    if (first == line.npos) continue;
    const std::size_t second = line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string_view path = line.substr(second + 1);
    if (controllers.empty()) folders.v2 = upwards(path);
    const auto names = split(controllers, ',');
    if (std::find(names.begin(), names.end(), "cpu") != names.end()) {
      folders.v1 = upwards(path);
      folders.v1_mounts = {std::string(controllers)};
      if (controllers != "cpu") folders.v1_mounts.emplace_back("cpu");
    }
  }
  return folders;
}

std::optional<double> quota_cores(std::string_view cpu_max) {
  while (cpu_max.ends_with('\n')) cpu_max.remove_suffix(1);
  const std::vector<std::string_view> words = split(cpu_max, ' ');
  if (words.size() != 2) return std::nullopt;
  const auto quota = whole_number<long long>(words[0]);
  const auto period = whole_number<long long>(words[1]);
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

int cores_within(int cores, std::optional<double> quota) {
  if (quota && *quota < cores) cores = static_cast<int>(std::floor(*quota));
  return std::max(cores, 1);
}

std::optional<int> nvidia_device_number(std::string_view file) {
  constexpr std::string_view kPrefix = "nvidia";
  if (!file.starts_with(kPrefix) || file.size() > kPrefix.size() + 6) return std::nullopt;
  file.remove_prefix(kPrefix.size());
  if (file.empty() || file.find_first_not_of("0123456789") != file.npos) return std::nullopt;
  return whole_number<int>(file);
}

std::string_view labeled_value(std::string_view text, std::string_view label) {
  for (std::string_view line : split(text, '\n')) {
    if (!line.starts_with(label)) continue;
    line.remove_prefix(label.size());
    if (line.empty() || std::string_view(": \t").find(line.front()) == std::string_view::npos)
      continue;
    const std::size_t begin = line.find_first_not_of(": \t");
    return begin == line.npos ? std::string_view() : trimmed(line.substr(begin));
  }
  return {};
}

std::optional<long long> first_number(std::string_view text) {
  text = trimmed(text);
  return whole_number<long long>(text.substr(0, text.find_first_of(" \t\n")));
}

}  // namespace drun
