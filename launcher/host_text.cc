#include "launcher/host_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace drun {
namespace {

std::optional<long long> number(std::string_view text) {
  long long value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || ec != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

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
    if (std::find(names.begin(), names.end(), "cpu") != names.end()) folders.v1 = upwards(path);
  }
  return folders;
}

std::optional<double> quota_cores(std::string_view cpu_max) {
  while (cpu_max.ends_with('\n')) cpu_max.remove_suffix(1);
  const std::vector<std::string_view> words = split(cpu_max, ' ');
  if (words.size() != 2) return std::nullopt;
  const std::optional<long long> quota = number(words[0]);
  const std::optional<long long> period = number(words[1]);
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

int cores_within(int cores, std::optional<double> quota) {
  if (quota && *quota < cores) cores = static_cast<int>(std::floor(*quota));
  return std::max(cores, 1);
}

int visible_gpus(const std::optional<std::string>& list, int installed) {
  if (!list) return installed;
  int count = 0;
  for (std::string_view entry : split(*list, ',')) {
    while (entry.starts_with(' ')) entry.remove_prefix(1);
    while (entry.ends_with(' ')) entry.remove_suffix(1);
    const std::optional<long long> index = number(entry);
    const bool is_device = index ? *index >= 0 && *index < installed
                                 : entry.starts_with("GPU-") || entry.starts_with("MIG-");
    if (!is_device) break;
    ++count;
  }
  return count;
}

}  // namespace drun
