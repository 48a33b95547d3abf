#include "agent/hang/heartbeat_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "agent/process/scratch.h"
#include "rendezvous/base/pulse_page.h"

namespace drun::agent {
namespace {

std::string text_of(const PulseEntry& entry) {
  std::string text(entry.kind < kPulseKinds.size() ? kPulseKinds[entry.kind] : "an operation");
  if (entry.sequence > 0) text += " #" + std::to_string(entry.sequence);
  if (entry.group != 0) text += " of a smaller group";
  if (entry.bytes > 0) text += " (" + std::to_string(entry.bytes) + " bytes)";
  return text;
}

}  // namespace

Pulse read_pulse(std::string_view bytes) {
  PulsePage page;
  if (bytes.size() < sizeof(page)) return {};
  std::memcpy(&page, bytes.data(), sizeof(page));
  if (page.magic != kPulseMagic) return {};
  Pulse pulse{.beats = page.beats, .arrived = page.world_arrived};
  const PulseEntry* oldest_open = nullptr;
  const PulseEntry* latest = nullptr;
  for (const PulseEntry& entry : page.entries) {
    if (entry.number == 0 || entry.number > page.begun) continue;
    if (latest == nullptr || entry.number > latest->number) latest = &entry;
    if (entry.has_ended != 0) continue;
    if (oldest_open == nullptr || entry.number < oldest_open->number) oldest_open = &entry;
  }
  pulse.is_inside = oldest_open != nullptr;
  if (oldest_open != nullptr)
    pulse.doing = "in " + text_of(*oldest_open);
  else if (latest != nullptr)
    pulse.doing = "last ended " + text_of(*latest) + ", not in one";
  return pulse;
}

CallTimes read_call_times(std::string_view bytes, std::chrono::nanoseconds now) {
  PulsePage page;
  if (bytes.size() < sizeof(page)) return {};
  std::memcpy(&page, bytes.data(), sizeof(page));
  if (page.magic != kPulseMagic) return {};
  constexpr std::uint64_t kMost = std::uint64_t{1} << 62;
  const auto now_ns = static_cast<std::uint64_t>(now.count());
  const bool is_waiting = page.waiting_since_ns > 0 && page.waiting_since_ns < now_ns;
  const std::uint64_t ns = std::min(page.waited_ns, kMost / 2) +
                           (is_waiting ? std::min(now_ns - page.waiting_since_ns, kMost / 2) : 0);
  return {.begun = page.begun, .in_calls = std::chrono::nanoseconds(ns)};
}

namespace {

std::int64_t changed_ns(int fd) {
  struct stat about {};
  if (::fstat(fd, &about) != 0) return 0;
  return std::int64_t{about.st_mtim.tv_sec} * 1'000'000'000 + about.st_mtim.tv_nsec;
}

// Makes the file kPulseBytes long. Returns an errno, or 0.
int allocate(int fd) {
  const int error = ::posix_fallocate(fd, 0, kPulseBytes);
  if (error != EOPNOTSUPP && error != EINVAL) return error;
  return ::ftruncate(fd, kPulseBytes) == 0 ? 0 : errno;
}

}  // namespace

Result<void> HeartbeatFiles::prepare(int round, int workers) {
  directory_.clear();
  Result<void> made = make_files(round, workers);
  if (!made) files_.clear();
  return made;
}

Result<void> HeartbeatFiles::make_files(int round, int workers) {
  files_.clear();
  if (workers > 0)
    if (Result<void> made = directory_.make(); !made) return made;
  for (int local_rank = 0; local_rank < workers; ++local_rank) {
    File file;
    file.path = directory_.path() + "/" + std::to_string(round) + "." + std::to_string(local_rank);
    file.fd = UniqueFd(
        ::open(file.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    const int error = file.fd ? allocate(file.fd.get()) : errno;
    if (is_out_of_room(error) && directory_.move_to_disk()) return make_files(round, workers);
    if (error != 0) return system_error("make heartbeat file " + file.path, error);
    file.made_ns = changed_ns(file.fd.get());
    files_.push_back(std::move(file));
  }
  return {};
}

std::uint64_t HeartbeatFiles::heartbeat(std::size_t local_rank) const {
  if (local_rank >= files_.size()) return 0;
  const File& file = files_[local_rank];
  const std::uint64_t beats = pulse(local_rank).beats;
  const std::int64_t touched = changed_ns(file.fd.get()) - file.made_ns;
  if (beats == 0 && touched == 0) return 0;
  // Combines two counts; only changes of the result matter.
  return (beats * 0x9E3779B97F4A7C15U ^ static_cast<std::uint64_t>(touched)) | 1;
}

std::string HeartbeatFiles::page(std::size_t local_rank) const {
  if (local_rank >= files_.size()) return "";
  std::string page(kPulseBytes, '\0');
  const ssize_t size = ::pread(files_[local_rank].fd.get(), page.data(), page.size(), 0);
  page.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  return page;
}

Pulse HeartbeatFiles::pulse(std::size_t local_rank) const { return read_pulse(page(local_rank)); }

CallTimes HeartbeatFiles::call_times(std::size_t local_rank) const {
  return read_call_times(page(local_rank), std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace drun::agent
