#include "agent/process/leftovers.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "rendezvous/base/text.h"

namespace drun::agent {
namespace {

constexpr std::size_t kListed = 20;
constexpr int kKillLooks = 8;
// A child that missed its group's signal began within this time after it, in 1/100 s. A later one
// was started by something that had the signal.
constexpr std::uint64_t kMissedWithinTicks = 500;

// A zombie cannot handle signals, and its children have another parent already.
bool is_alive(const ProcessStat& process) { return process.state != 'Z' && process.state != 'X'; }

// A process inherits its worker's environment; /proc shows the one it was started with.
std::optional<int> rank_of(int pid) {
  constexpr std::string_view kName = "RANK=";
  constexpr std::size_t kMostEnvironmentBytes = 256 * 1024;
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
  std::string entry;
  for (std::size_t bytes = 0; bytes < kMostEnvironmentBytes && std::getline(file, entry, '\0');) {
    bytes += entry.size() + 1;
    if (!entry.starts_with(kName)) continue;
    return whole_number<int>(std::string_view(entry).substr(kName.size()));
  }
  return std::nullopt;
}

// The folder in /proc of a thread that is in uninterruptible sleep. Any thread can keep the process
// from exiting; its main thread is a zombie then.
std::optional<std::filesystem::path> sleeping_thread(int pid) {
  constexpr int kMostThreads = 4096;
  std::error_code ec;
  std::filesystem::directory_iterator threads("/proc/" + std::to_string(pid) + "/task", ec);
  for (int i = 0; !ec && threads != std::filesystem::directory_iterator() && i < kMostThreads;
       ++i) {
    const std::filesystem::path folder = threads->path();
    ProcessStat stat;
    if (parse_stat(read_proc_file(folder / "stat"), stat) && stat.state == 'D') return folder;
    threads.increment(ec);
  }
  return std::nullopt;
}

// Why a process exists although it was sent SIGKILL.
std::string unkillable_reason(const ProcessStat& process) {
  if (const auto thread = sleeping_thread(process.pid)) {
    const std::string where = read_proc_file(*thread / "wchan").substr(0, 64);
    return "it is in uninterruptible sleep" +
           (where.empty() || where == "0" ? "" : " (" + where + ")");
  }
  if (kill(process.pid, 0) != 0 && errno == EPERM) return "it belongs to another user";
  return "the kernel is still ending it";
}

void note(LeftoverList& list, const ProcessStat& process, std::string reason = {}) {
  if (list.listed.size() < kListed)
    list.listed.push_back({.pid = process.pid,
                           .name = process_name(process.pid),
                           .rank = rank_of(process.pid),
                           .reason = std::move(reason)});
  ++list.count;
}

}  // namespace

std::string to_string(const Leftover& process) {
  std::string details = process.name;
  if (process.rank)
    details += (details.empty() ? "rank " : ", rank ") + std::to_string(*process.rank);
  return "pid " + std::to_string(process.pid) + (details.empty() ? "" : " (" + details + ")");
}

std::string to_string(const LeftoverList& processes) {
  std::string text;
  for (const Leftover& process : processes.listed)
    text += (text.empty() ? "" : ", ") + to_string(process);
  const std::size_t more = processes.count - processes.listed.size();
  return more == 0 ? text : text + " and " + std::to_string(more) + " more";
}

std::vector<int> Orphans::not_looked_at() const {
  std::vector<int> pids = given_up_;
  if (spared_ != 0) pids.push_back(spared_);
  return pids;
}

bool Orphans::note_whole(const Descendants& found) {
  is_blind_ = is_blind_ || !found.is_whole();
  return found.is_whole();
}

void Orphans::begin() {
  groups_.clear();
  signaled_groups_.clear();
  leaderless_groups_.clear();
  signaled_.clear();
  killed_.clear();
  leftovers_ = {};
}

void Orphans::signal_once(int signal, bool is_cleanup) {
  if (!has_children()) return;  // the common case, without a look at /proc
  const Descendants found(not_looked_at());
  if (!note_whole(found)) {
    for (const int group : groups_)
      if (!signaled_groups_.contains(group)) signal_known_group(group, getsid(0), signal);
  }
  for (const ProcessStat& process : found.all()) {
    if (!is_alive(process) || signaled_groups_.contains(process.group)) continue;
    if (!signaled_.insert({process.pid, process.started_ticks}).second) continue;
    if (is_cleanup) note(leftovers_.terminated, process);
    if (send_signal(process, signal)) send_signal(process, SIGCONT);
  }
}

void Orphans::signal_missed(int signal) {
  std::erase_if(leaderless_groups_, [](int group) { return kill(-group, 0) != 0; });
  if (leaderless_groups_.empty()) return;
  const Descendants found(not_looked_at());
  for (const ProcessStat& process : found.all()) {
    const std::uint64_t began = process.started_ticks;
    const bool may_have_missed =
        process.parent == getpid() && leaderless_groups_.contains(process.group) &&
        began >= group_signals_.begin && began <= group_signals_.end + kMissedWithinTicks;
    if (!is_alive(process) || !may_have_missed) continue;
    // Of a process that began while the groups were signaled, it is not known whether it has got
    // the signal. If it had, it would have ended by it, unless it handles it; then it is not sent
    // twice.
    if (began <= group_signals_.end && handles_signal(process.pid, signal)) continue;
    if (signaled_.insert({process.pid, began}).second) send_signal(process, signal);
  }
}

bool Orphans::notify(int signal) {
  const Descendants found(not_looked_at());
  for (const ProcessStat& process : found.all()) {
    if (is_alive(process) && handles_signal(process.pid, signal)) send_signal(process, signal);
  }
  return note_whole(found);
}

void Orphans::kill_all(bool is_cleanup) {
  // Repeated while new processes turn up: one may have been forking during the look.
  for (int looks = 0; looks < kKillLooks && has_children(); ++looks)
    if (!kill_found(is_cleanup)) return;
}

bool Orphans::kill_found(bool is_cleanup) {
  const Descendants found(not_looked_at());
  if (!note_whole(found)) {
    for (const int group : groups_) signal_known_group(group, getsid(0), SIGKILL);
  }
  bool any_new = false;
  for (const ProcessStat& process : found.all()) {
    const ProcessId id{process.pid, process.started_ticks};
    const bool is_new = is_alive(process) && killed_.insert(id).second;
    const bool was_signaled = signaled_.contains(id) || signaled_groups_.contains(process.group);
    if (is_new && is_cleanup && !was_signaled) note(leftovers_.terminated, process);
    send_signal(process, SIGKILL);
    any_new = any_new || is_new;
  }
  return any_new;
}

LeftoverList Orphans::running() {
  LeftoverList list;
  const Descendants found(not_looked_at());
  note_whole(found);
  for (const ProcessStat& process : found.all())
    if (is_alive(process) && !signaled_groups_.contains(process.group)) note(list, process);
  return list;
}

bool Orphans::reap(const IsWorker& is_worker) {
  while (true) {
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0) return true;
    if (info.si_pid == 0) break;
    if (is_worker(info.si_pid) || info.si_pid == spared_)
      return false;  // its Process reaps it, then this is called again
    waitid(P_PID, static_cast<id_t>(info.si_pid), &info, WEXITED | WNOHANG);
    std::erase(given_up_, info.si_pid);
  }
  if (given_up_.empty() && spared_ == 0) return false;
  const Descendants others(not_looked_at());
  if (note_whole(others)) return others.all().empty();
  return std::none_of(groups_.begin(), groups_.end(),
                      [](int group) { return signal_known_group(group, getsid(0), 0); });
}

void Orphans::give_up() {
  const Descendants found(not_looked_at());
  note_whole(found);
  for (const ProcessStat& process : found.all()) {
    note(leftovers_.unkillable, process, unkillable_reason(process));
    if (process.parent == getpid()) given_up_.push_back(process.pid);
  }
}

}  // namespace drun::agent
