#include "agent/process/kernel_reports.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "agent/process/proc.h"
#include "rendezvous/base/text.h"

namespace drun::agent {
namespace {

// "emergency,sequence,time,flags;text": the first number is the level plus 8 times the facility,
// which is 0 for the kernel. Lines that begin with a blank are key-value pairs of the record.
bool is_of_kernel(std::string_view prefix) {
  constexpr int kFirstOfPrograms = 8;
  return leading_number<int>(prefix).value_or(kFirstOfPrograms) < kFirstOfPrograms;
}

}  // namespace

KernelLog::KernelLog(const std::string& path)
    : log_(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {}

void KernelLog::skip() {
  if (log_.get() >= 0) lseek(log_.get(), 0, SEEK_END);
}

void KernelLog::read(const std::function<void(std::string_view)>& visit) {
  std::array<char, 8192> record;  // the kernel's own limit on one record
  for (std::size_t count = 0; log_.get() >= 0 && count < kMostRecords; ++count) {
    const ssize_t size = ::read(log_.get(), record.data(), record.size());
    // EPIPE: records were overwritten before this read; the next read continues after them.
    if (size < 0 && (errno == EPIPE || errno == EINTR)) continue;
    if (size <= 0) return;
    for (const std::string_view line : split({record.data(), static_cast<std::size_t>(size)}, '\n'))
      if (const std::size_t end = line.find(';'); end != line.npos && is_of_kernel(line))
        visit(line.substr(end + 1));
  }
}

std::optional<std::uint64_t> parse_oom_kills(std::string_view text) {
  constexpr std::string_view kName = "oom_kill ";
  for (const std::string_view line : split(text, '\n'))
    if (line.starts_with(kName)) return leading_number<std::uint64_t>(line.substr(kName.size()));
  return std::nullopt;
}

std::optional<int> parse_oom_victim(std::string_view text) {
  // Kernels before 5.0 say "Kill process 12 (x) score ..." first; only "Killed" reports the kill.
  constexpr std::string_view kDeed = "Killed process ";
  const std::size_t at = text.find(kDeed);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view before = text.substr(0, at);
  const bool is_kernels = before.empty() || before.find("emory") != std::string_view::npos;
  return is_kernels ? leading_number<int>(text.substr(at + kDeed.size())) : std::nullopt;
}

std::vector<std::string> oom_files(std::string_view proc_self_cgroup) {
  std::vector<std::string> v2;
  std::vector<std::string> v1;
  for (const CgroupEntry& entry : parse_cgroups(proc_self_cgroup)) {
    const auto& names = entry.controllers;
    const bool is_v1 = std::find(names.begin(), names.end(), "memory") != names.end();
    if (!is_v1 && !names.empty()) continue;
    std::vector<std::string>& files = is_v1 ? v1 : v2;
    files = cgroup_folders(is_v1 ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup", entry.path);
    for (std::string& file : files) file += is_v1 ? "/memory.oom_control" : "/memory.events";
  }
  v2.insert(v2.end(), v1.begin(), v1.end());
  return v2;
}

std::optional<std::uint64_t> count_oom_kills() {
  constexpr std::size_t kMostBytes = 64 * 1024;
  static const std::vector<std::string> files =
      oom_files(read_proc_file("/proc/self/cgroup", kMostBytes));
  for (const std::string& path : files) {
    if (const auto kills = parse_oom_kills(read_proc_file(path, kMostBytes))) return kills;
  }
  return std::nullopt;
}

void OomWatch::begin() {
  victims_.clear();
  seen_ = count_oom_kills().value_or(0);
  log_.skip();
}

bool OomWatch::is_victim(int pid) {
  log_.read([this](std::string_view text) {
    if (const auto victim = parse_oom_victim(text)) victims_.insert(*victim);
  });
  const bool is_named = victims_.contains(pid);
  const std::uint64_t kills = count_oom_kills().value_or(seen_);
  const bool is_counted = kills > seen_;
  if (is_counted) ++seen_;
  return is_named || is_counted;
}

}  // namespace drun::agent
