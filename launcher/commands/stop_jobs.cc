#include "launcher/commands/commands.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/base/words.h"
#include "launcher/commands/local_jobs.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/unique_fd.h"

namespace drun {
namespace {

using Clock = std::chrono::steady_clock;
using TimeLeft = std::optional<std::chrono::milliseconds>;  // absent: no limit

void complain(const std::string& text) {
  std::fprintf(stderr, "drun stop: %s%s", text.c_str(), text.ends_with('\n') ? "" : "\n");
}

// The process that the user started, and its agent.
struct JobProcess {
  StatusNames names{};
  bool answers = false;
  UniqueFd pidfd{};  // of drun; readable when it has ended
  bool is_gone() const { return !pidfd; }
};

struct StoppedJob {
  std::string name{};  // printable
  std::vector<JobProcess> processes{};
  std::size_t other_nodes = 0;  // where it continues without the nodes of this machine
  bool has_failed = false;      // to signal one of them
  bool is_gone() const {
    return std::all_of(processes.begin(), processes.end(),
                       [](const JobProcess& process) { return process.is_gone(); });
  }
};

// Sends SIGTERM, and SIGCONT to a suspended job, as service managers do: it could not end itself.
// Returns an error message, or nothing, also for a process that has ended.
std::string terminate(JobProcess& process, const std::string& name) {
  const auto& [run_id, agent_pid, drun_pid, meeting_point] = process.names;
  Result<UniqueFd> opened = open_drun(process.names);
  if (!opened) return "cannot stop " + name + ": " + opened.error().message;
  UniqueFd pidfd = *std::move(opened);
  if (!pidfd) return "";
  const auto send = [&pidfd](int signal) {
    return syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0) == 0;
  };
  const bool was_suspended = is_suspended(agent_pid);
  if (!send(SIGTERM)) {
    if (errno == ESRCH) return "";
    return "cannot stop " + name + ": cannot signal process " + std::to_string(drun_pid) + ": " +
           system_message(errno);
  }
  const std::string agent_words =
      "agent " + std::to_string(agent_pid) + " of " + name + " does not answer";
  if (was_suspended || is_suspended(drun_pid)) send(SIGCONT);  // it forwards this as well
  if (was_suspended)
    complain(agent_words + ": it was suspended, and continues to stop the job");
  else if (!process.answers)
    complain(agent_words + "; it stops the job as soon as it runs again");
  process.pidfd = std::move(pidfd);
  return "";
}

// The nodes on other machines where an elastic job continues; 0: the job ends.
std::size_t nodes_elsewhere(const std::vector<LocalAgent>& agents) {
  for (const LocalAgent& agent : agents) {
    if (!agent.answers() || nodes_in_status(agent.status) <= agents.size()) continue;
    const std::vector<std::string> statuses = job_statuses({agent});
    if (!statuses.empty()) return nodes_that_continue(statuses.front(), agents.size());
  }
  return 0;
}

class Stopper {
 public:
  // Adds the jobs with these names. Returns false if one is unknown or ambiguous.
  bool find(const std::vector<std::string>& names) {
    const std::vector<LocalAgent> all = local_agents();
    bool is_good = true;
    for (const std::string& name : names) is_good = find(name, all) && is_good;
    return is_good;
  }

  bool signal_all() {
    bool is_good = true;
    for (StoppedJob& job : found_) {
      for (JobProcess& process : job.processes) {
        const std::string error = terminate(process, job.name);
        if (error.empty()) continue;
        complain(error);
        job.has_failed = true;
      }
      is_good = is_good && !job.has_failed;
    }
    return is_good;
  }

  // Prints a line for each job when it is gone. Returns whether all are.
  bool wait(TimeLeft limit) {
    const Clock::time_point began = Clock::now();
    report_gone();
    while (!found_.empty()) {
      int left_ms = -1;
      if (limit) {
        const auto left =
            *limit - std::chrono::floor<std::chrono::milliseconds>(Clock::now() - began);
        if (left.count() <= 0) return false;
        left_ms = static_cast<int>(std::min<std::chrono::milliseconds::rep>(left.count(), 1 << 30));
      }
      wait_for_one(left_ms);
      report_gone();
    }
    return true;
  }

  void report_stopping() const {
    for (const StoppedJob& job : found_)
      if (!job.is_gone()) std::printf("stopping %s\n", job.name.c_str());
  }

  void complain_running(std::chrono::milliseconds waited) const {
    for (const StoppedJob& job : found_) {
      std::string processes;
      std::string pids;
      for (const JobProcess& process : job.processes) {
        if (process.is_gone()) continue;
        processes += (processes.empty() ? "process " : ", process ") +
                     std::to_string(process.names.drun_pid) + " (agent " +
                     std::to_string(process.names.agent_pid) +
                     (is_suspended(process.names.agent_pid) ? ", suspended)" : ")");
        pids += " " + std::to_string(process.names.drun_pid);
      }
      complain(job.name + " still runs after " + in_words(waited) + ": " + processes +
               "; to kill it on this machine: kill -KILL" + pids);
    }
  }

 private:
  bool find(const std::string& name, const std::vector<LocalAgent>& all) {
    const std::vector<LocalAgent> agents = agents_called(all, name);
    if (agents.empty()) {
      complain(no_such_job_but(name, all));
      return false;
    }
    if (const std::size_t count = job_count(agents); count > 1) {
      std::string pids;
      for (const LocalAgent& agent : agents) pids += " " + std::to_string(agent.names.drun_pid);
      complain(std::to_string(count) + " jobs have the run id \"" + printable(name) +
               "\"; give the pid of one:" + pids);
      return false;
    }
    std::vector<LocalAgent> more;
    for (const LocalAgent& agent : agents)
      if (pids_.insert(agent.names.drun_pid).second) more.push_back(agent);
    if (more.empty()) return true;  // given twice
    const std::string& run_id = more.front().names.run_id;
    StoppedJob job{.name = run_id.empty() ? printable(name) : printable(run_id)};
    job.other_nodes = nodes_elsewhere(more);
    for (const LocalAgent& agent : more)
      job.processes.push_back({.names = agent.names, .answers = agent.answers()});
    found_.push_back(std::move(job));
    return true;
  }

  void wait_for_one(int left_ms) {
    std::vector<pollfd> waits;
    std::vector<JobProcess*> processes;
    for (StoppedJob& job : found_) {
      for (JobProcess& process : job.processes) {
        if (process.is_gone()) continue;
        waits.push_back({.fd = process.pidfd.get(), .events = POLLIN, .revents = 0});
        processes.push_back(&process);
      }
    }
    if (poll(waits.data(), waits.size(), left_ms) <= 0) return;
    for (std::size_t i = 0; i < waits.size(); ++i)
      if (waits[i].revents != 0) processes[i]->pidfd.reset();
  }

  void report_gone() {
    std::erase_if(found_, [](const StoppedJob& job) {
      if (!job.is_gone()) return false;
      if (job.has_failed) return true;
      std::printf("stopped %s", job.name.c_str());
      if (job.other_nodes > 0)
        std::printf(" on this machine; it is elastic and continues on %s",
                    counted(job.other_nodes, "other node").c_str());
      std::printf("\n");
      std::fflush(stdout);
      return true;
    });
  }

  std::vector<StoppedJob> found_;
  std::set<int> pids_;  // of drun; each is stopped once
};

}  // namespace

int stop_jobs(const StopCommand& command) {
  Stopper stopper;
  bool is_good = stopper.find(command.jobs);
  is_good = stopper.signal_all() && is_good;
  if (command.timeout && command.timeout->count() == 0) {
    stopper.report_stopping();
  } else if (!stopper.wait(command.timeout)) {
    stopper.complain_running(*command.timeout);
    is_good = false;
  }
  return is_good ? 0 : 1;
}

}  // namespace drun
