#include "agent/process/kernel_reports.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "agent/numbers.h"
#include "agent/process/descendants.h"
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

namespace {

constexpr std::size_t kFileLimit = 64 * 1024;

// Calls `visit` with every line, without its end.
template <typename Visit>
void for_each_line(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    visit(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

// A memory controller named among "cpu,memory".
bool names_memory(std::string_view controllers) {
  while (true) {
    const std::size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == "memory") return true;
    if (comma == std::string_view::npos) return false;
    controllers.remove_prefix(comma + 1);
  }
}

std::string in_directory(std::string_view path, std::string_view file) {
  return std::string(path) + (path.ends_with('/') ? "" : "/") + std::string(file);
}

}  // namespace

std::optional<std::uint64_t> parse_oom_kills(std::string_view text) {
  constexpr std::string_view kName = "oom_kill ";
  std::optional<std::uint64_t> kills;
  for_each_line(text, [&kills, kName](std::string_view line) {
    if (line.starts_with(kName)) kills = leading_number<std::uint64_t>(line.substr(kName.size()));
  });
  return kills;
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

OomFiles parse_cgroups(std::string_view text) {
  OomFiles files;
  for_each_line(text, [&files](std::string_view line) {
    const std::size_t first = line.find(':');
    if (first == std::string_view::npos) return;
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) return;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string_view path = line.substr(second + 1);
    if (!path.starts_with('/')) return;
    if (line.starts_with("0::"))
      files.v2 = "/sys/fs/cgroup" + in_directory(path, "memory.events");
    else if (names_memory(controllers))
      files.v1 = "/sys/fs/cgroup/memory" + in_directory(path, "memory.oom_control");
  });
  return files;
}

bool can_count_oom_kills() {
  const OomFiles files = parse_cgroups(read_proc_file("/proc/self/cgroup", kFileLimit));
  for (const std::string& path : {files.v2, files.v1})
    if (!path.empty() && parse_oom_kills(read_proc_file(path, kFileLimit))) return true;
  return false;
}

OomWatch::OomWatch() : files_(parse_cgroups(read_proc_file("/proc/self/cgroup", kFileLimit))) {}

std::optional<std::uint64_t> OomWatch::count() const {
  for (const std::string& path : {files_.v2, files_.v1}) {
    if (path.empty()) continue;
    if (const auto kills = parse_oom_kills(read_proc_file(path, kFileLimit))) return kills;
  }
  return std::nullopt;
}

void OomWatch::begin() {
  victims_.clear();
  seen_ = count().value_or(0);
  log_.skip();
}

bool OomWatch::is_victim(int pid) {
  log_.read([this](std::string_view text) {
    if (const auto victim = parse_oom_victim(text)) victims_.insert(*victim);
  });
  const bool is_named = victims_.contains(pid);
  const std::uint64_t kills = count().value_or(seen_);
  const bool is_counted = kills > seen_;
  if (is_counted) ++seen_;
  return is_named || is_counted;
}

}  // namespace drun::agent
