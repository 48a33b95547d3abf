#include "agent/orphans.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "agent/descendants.h"

namespace drun::agent {
namespace {

constexpr std::size_t kListed = 20;
constexpr int kKillLooks = 8;

bool has_children() {
  siginfo_t info{};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

// A zombie is nobody to be told; its children have another parent already.
bool is_alive(const ProcessStat& process) { return process.state != 'Z' && process.state != 'X'; }

void note(std::vector<Leftover>& list, std::size_t& count, int pid) {
  if (list.size() < kListed) list.push_back({.pid = pid, .name = process_name(pid)});
  ++count;
}

}  // namespace

void Orphans::begin() {
  groups_.clear();
  signalled_groups_.clear();
  signalled_.clear();
  killed_.clear();
  leftovers_ = {};
}

void Orphans::signal_once(int signal, bool are_leftovers) {
  if (!has_children()) return;  // the usual end, and no need to look at /proc
  const Descendants found(given_up_);
  if (!found.is_whole()) {
    is_blind_ = true;
    for (const int group : groups_)
      if (!signalled_groups_.contains(group)) signal_known_group(group, getsid(0), signal);
  }
  for (const ProcessStat& process : found.all()) {
    if (!is_alive(process) || signalled_groups_.contains(process.group)) continue;
    if (!signalled_.insert(process.pid).second) continue;
    if (are_leftovers) note(leftovers_.stopped, leftovers_.stopped_count, process.pid);
    if (send_signal(process, signal)) send_signal(process, SIGCONT);
  }
}

void Orphans::kill_all(bool are_leftovers) {
  // Again while somebody new turns up: a process that was forking when we looked.
  for (int looks = 0; looks < kKillLooks && has_children(); ++looks)
    if (!kill_found(are_leftovers)) return;
}

bool Orphans::kill_found(bool are_leftovers) {
  const Descendants found(given_up_);
  if (!found.is_whole()) {
    is_blind_ = true;
    for (const int group : groups_) signal_known_group(group, getsid(0), SIGKILL);
  }
  bool any_new = false;
  for (const ProcessStat& process : found.all()) {
    send_signal(process, SIGKILL);
    if (!is_alive(process) || !killed_.insert(process.pid).second) continue;
    any_new = true;
    const bool had_signal =
        signalled_.contains(process.pid) || signalled_groups_.contains(process.group);
    if (are_leftovers && !had_signal)
      note(leftovers_.stopped, leftovers_.stopped_count, process.pid);
  }
  return any_new;
}

bool Orphans::reap(const IsWorker& is_worker) {
  while (true) {
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0) return true;
    if (info.si_pid == 0) break;
    if (is_worker(info.si_pid)) return false;  // its Process reaps it, and we are asked again
    waitid(P_PID, static_cast<id_t>(info.si_pid), &info, WEXITED | WNOHANG);
    killed_.erase(info.si_pid);
    signalled_.erase(info.si_pid);  // the number may be another's now
    std::erase(given_up_, info.si_pid);
  }
  if (given_up_.empty()) return false;
  const Descendants others(given_up_);
  return others.all().empty();
}

void Orphans::give_up() {
  const Descendants found(given_up_);
  for (const ProcessStat& process : found.all()) {
    note(leftovers_.unkillable, leftovers_.unkillable_count, process.pid);
    if (process.parent == getpid()) given_up_.push_back(process.pid);
  }
}

}  // namespace drun::agent
