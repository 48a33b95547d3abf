#include "agent/process/proc.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <system_error>
#include <unordered_map>

#include "rendezvous/base/text.h"
#include "rendezvous/base/unique_fd.h"

namespace drun::agent {

std::string read_proc_file(const std::string& path, std::size_t most_bytes) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> piece;
  while (file && text.size() < most_bytes) {
    const ssize_t size =
        read(file.get(), piece.data(), std::min(piece.size(), most_bytes - text.size()));
    if (size <= 0) break;
    text.append(piece.data(), static_cast<std::size_t>(size));
    if (static_cast<std::size_t>(size) < piece.size()) break;
  }
  return text;
}

namespace {

template <typename T>
bool take_number(std::string_view& text, T& value) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

}  // namespace

bool parse_stat(std::string_view text, ProcessStat& stat) {
  ProcessStat parsed;
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string_view::npos || !take_number(text, parsed.pid)) return false;
  text.remove_prefix(std::min(text.size(), text.rfind(')') + 1));
  if (text.size() < 3 || text[0] != ' ') return false;
  parsed.state = text[1];
  text.remove_prefix(2);
  if (!take_number(text, parsed.parent) || !take_number(text, parsed.group)) return false;
  if (parsed.pid <= 0 || parsed.parent < 0) return false;
  constexpr int kSessionField = 6;  // their numbers in proc(5)
  constexpr int kUserTimeField = 14;
  constexpr int kReapedSystemTimeField = 17;
  constexpr int kStartTimeField = 22;
  for (int field = kSessionField; field <= kStartTimeField; ++field) {
    std::int64_t value = 0;
    if (!take_number(text, value)) break;
    if (field >= kUserTimeField && field <= kReapedSystemTimeField)
      parsed.cpu_ticks += static_cast<std::uint64_t>(value);
    if (field == kStartTimeField) parsed.started_ticks = static_cast<std::uint64_t>(value);
  }
  stat = parsed;
  return true;
}

bool parse_status(std::string_view text, ProcessStat& stat) {
  const auto field = [text](std::string_view name) {  // a name's line ends are escaped
    const std::size_t at = text.find(name);
    return at == text.npos ? std::string_view() : text.substr(at + name.size());
  };
  const std::string_view state = field("\nState:\t");
  std::string_view pid = field("\nPid:\t");
  std::string_view parent = field("\nPPid:\t");
  ProcessStat parsed;
  if (state.empty() || !take_number(pid, parsed.pid) || !take_number(parent, parsed.parent))
    return false;
  if (parsed.pid <= 0 || parsed.parent < 0) return false;
  parsed.state = state.front();
  stat = parsed;
  return true;
}

std::uint64_t ticks_since_boot() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec * 100 + now.tv_nsec / 10'000'000);
}

std::vector<std::vector<ProcessStat>> trees_below(std::span<const int> tops,
                                                  std::span<const ProcessStat> all,
                                                  std::size_t most) {
  constexpr int kDeepest = 1000;  // against a number reused in a circle
  std::unordered_map<int, std::size_t> top_of;
  for (std::size_t i = 0; i < tops.size(); ++i)
    if (tops[i] > 0) top_of.emplace(tops[i], i);
  std::unordered_map<int, int> parents;
  for (const ProcessStat& process : all) parents.emplace(process.pid, process.parent);
  std::vector<std::vector<ProcessStat>> trees(tops.size());
  for (const ProcessStat& process : all) {
    int pid = process.pid;
    for (int steps = 0; steps < kDeepest && !top_of.contains(pid); ++steps) {
      const auto parent = parents.find(pid);
      if (parent == parents.end()) break;
      pid = parent->second;
    }
    const auto top = top_of.find(pid);
    if (top == top_of.end()) continue;
    std::vector<ProcessStat>& tree = trees[top->second];
    if (process.pid == pid)
      tree.insert(tree.begin(), process);
    else if (tree.size() < most)
      tree.push_back(process);
  }
  return trees;
}

std::string process_name(int pid) {
  const std::string name = read_proc_file("/proc/" + std::to_string(pid) + "/comm");
  return name.substr(0, std::min<std::size_t>(name.find('\n'), 64));
}

bool parse_handles(std::string_view status, int signal) {
  constexpr std::string_view kField = "\nSigCgt:\t";
  const std::size_t at = status.find(kField);
  if (at == std::string_view::npos || signal < 1 || signal > 64) return false;
  const std::string_view digits = status.substr(at + kField.size(), 16);
  return (leading_number<std::uint64_t>(digits, 16).value_or(0) >> (signal - 1) & 1) != 0;
}

bool handles_signal(int pid, int signal) {
  return parse_handles(read_proc_file("/proc/" + std::to_string(pid) + "/status"), signal);
}

std::vector<CgroupEntry> parse_cgroups(std::string_view text) {
  std::vector<CgroupEntry> entries;
  for (const std::string_view line : split(text, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? first : line.find(':', first + 1);
    if (second == line.npos || !line.substr(second + 1).starts_with('/')) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    CgroupEntry entry{.path = line.substr(second + 1)};
    if (!controllers.empty()) entry.controllers = split(controllers, ',');
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::vector<std::string> cgroup_folders(const std::string& mount, std::string_view path) {
  std::vector<std::string> folders;
  for (;;) {
    while (path.ends_with('/')) path.remove_suffix(1);
    folders.push_back(mount + std::string(path));
    if (path.empty()) return folders;
    path = path.substr(0, path.rfind('/') + 1);
  }
}

}  // namespace drun::agent
