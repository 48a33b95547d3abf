#include "worker_lib/start/processes.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>

#include "rendezvous/base/text.h"

namespace drun::worker {
namespace {

struct Stat {
  std::string program;
  std::vector<std::string> fields;  // from the state on, which is field 3 in proc(5)

  // Absent: it is not a number.
  std::optional<std::uint64_t> number(std::size_t field) const {
    constexpr std::size_t kFirst = 3;
    if (field - kFirst >= fields.size()) return std::nullopt;
    return leading_number<std::uint64_t>(fields[field - kFirst]);
  }
};

constexpr std::size_t kParent = 4;
constexpr std::size_t kFlags = 9;
constexpr std::size_t kStarted = 22;

// Of a process or thread. Its file is "12 (a name) S 11 ...": the name may hold anything, also
// parentheses.
std::optional<Stat> read_stat(const std::filesystem::path& directory) {
  std::ifstream file(directory / "stat");
  std::string text;
  std::getline(file, text, '\0');  // does not throw if the process ends meanwhile
  const std::size_t open = text.find('(');
  const std::size_t close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  std::istringstream rest(text.substr(close + 1));
  return Stat{.program = text.substr(open + 1, close - open - 1),
              .fields = {std::istream_iterator<std::string>(rest), {}}};
}

// 0: unknown.
std::uint64_t start_of(const std::filesystem::path& process) {
  const std::optional<Stat> stat = read_stat(process);
  return stat ? stat->number(kStarted).value_or(0) : 0;
}

}  // namespace

std::optional<int> ancestor_named(std::string_view program) {
  constexpr std::size_t kCommBytes = 15;
  constexpr int kMostGenerations = 1000;
  int id = getppid();
  for (int i = 0; i < kMostGenerations && id > 0; ++i) {
    const std::optional<Stat> stat = read_stat("/proc/" + std::to_string(id));
    if (!stat) return std::nullopt;
    if (stat->program == program.substr(0, kCommBytes)) return id;
    id = static_cast<int>(stat->number(kParent).value_or(0));
  }
  return std::nullopt;
}

std::size_t running_threads() {
  constexpr std::uint64_t kExiting = 0x4;  // PF_EXITING in the kernel's linux/sched.h
  std::error_code ec;
  std::size_t count = 0;
  std::filesystem::directory_iterator task("/proc/self/task", ec);
  for (; !ec && task != std::filesystem::directory_iterator(); task.increment(ec)) {
    const std::optional<Stat> stat = read_stat(task->path());
    // Without one, it has ended since it was listed.
    if (stat && (stat->number(kFlags).value_or(0) & kExiting) == 0) ++count;
  }
  return std::max<std::size_t>(count, 1);
}

ProcessName own_process() {
  struct stat about {};
  if (::stat("/proc/self/ns/pid", &about) != 0) return {};
  const ProcessName own{.pid = static_cast<std::uint32_t>(getpid()),
                        .pid_namespace = about.st_ino,
                        .started = start_of("/proc/" + std::to_string(getpid()))};
  // Where /proc is another pid namespace's, its numbers are of no use.
  return own.started != 0 && own.started == start_of("/proc/self") ? own : ProcessName{};
}

PeerProcesses::PeerProcesses(const std::vector<ProcessName>& processes) : fds_(processes.size()) {
  const ProcessName own = own_process();
  if (own == ProcessName{}) return;
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    const ProcessName& process = processes[rank];
    const bool is_seen = process.pid != 0 && process.pid_namespace == own.pid_namespace;
    if (!is_seen || process == own) continue;
    UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(process.pid), 0)));
    // It may have ended before; then the pid is free or another process's.
    if (fd && start_of("/proc/" + std::to_string(process.pid)) == process.started)
      fds_[rank] = std::move(fd);
  }
}

int PeerProcesses::fd(int world_rank) const {
  const auto at = static_cast<std::size_t>(world_rank);
  return world_rank >= 0 && at < fds_.size() && fds_[at] ? fds_[at].get() : -1;
}

}  // namespace drun::worker
