#include "worker_lib/start/peer_processes.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "worker_lib/base/unix_socket.h"

namespace drun::worker {
namespace {

// Field 22 of /proc/PID/stat (man 5 proc); 0: not to be had.
std::uint64_t start_of(const std::string& process) {
  std::ifstream file("/proc/" + process + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_end = text.rfind(')');  // the program's name may contain anything
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  constexpr int kSkipped = 19;  // state to itrealvalue
  std::string skipped;
  for (int i = 0; i < kSkipped; ++i) fields >> skipped;
  std::uint64_t started = 0;
  fields >> started;
  return fields ? started : 0;
}

}  // namespace

ProcessName own_process() {
  struct stat about {};
  if (::stat("/proc/self/ns/pid", &about) != 0) return {};
  const ProcessName own{.pid = static_cast<std::uint32_t>(getpid()),
                        .pid_namespace = about.st_ino,
                        .started = start_of(std::to_string(getpid()))};
  // Where /proc is another pid namespace's, its numbers are of no use.
  return own.started != 0 && own.started == start_of("self") ? own : ProcessName{};
}

PeerProcesses::PeerProcesses(const std::vector<ProcessName>& processes) : fds_(processes.size()) {
  const ProcessName own = own_process();
  if (own == ProcessName{}) return;
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    const ProcessName& process = processes[rank];
    const bool is_seen = process.pid != 0 && process.pid_namespace == own.pid_namespace;
    if (!is_seen || process == own) continue;
    UniqueFd fd = shm::watch_process(static_cast<pid_t>(process.pid));
    // It may have ended before; then the pid is free or another process's.
    if (fd && start_of(std::to_string(process.pid)) == process.started) fds_[rank] = std::move(fd);
  }
}

int PeerProcesses::fd(int world_rank) const {
  const auto at = static_cast<std::size_t>(world_rank);
  return world_rank >= 0 && at < fds_.size() && fds_[at] ? fds_[at].get() : -1;
}

std::optional<int> PeerProcesses::ended(const std::vector<int>& world_ranks,
                                        std::chrono::milliseconds time) const {
  std::vector<pollfd> waiting;
  std::vector<int> ranks;
  for (const int rank : world_ranks) {
    if (fd(rank) < 0) continue;
    waiting.push_back({.fd = fd(rank), .events = POLLIN, .revents = 0});
    ranks.push_back(rank);
  }
  if (waiting.empty() || poll(waiting.data(), waiting.size(), static_cast<int>(time.count())) <= 0)
    return std::nullopt;
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    if (waiting[i].revents != 0) return ranks[i];
  }
  return std::nullopt;
}

}  // namespace drun::worker
