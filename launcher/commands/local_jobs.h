// edge. The jobs that have an agent on this machine and belong to this user, or to any user for
// root: what drun status, list, stacks, stop, logs and the completion of job names share. Blocks
// until the agents answer.
#pragma once

#include <chrono>
#include <cstddef>
#include <istream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/report/status_text.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/unique_fd.h"

namespace drun {

// --- Agents: found by their sockets and queried (agent/status/status_socket.h); those without an
// answer are left out
//
// Security: accepts data only from a process of the user that is part of the socket's name.

// The socket names in `list`, which has the format of /proc/net/unix, that belong to `user`, or to
// any user if `user` is 0. Sorted, without the '@'.
std::vector<std::string> sockets_in(std::istream& list, const std::string& word, unsigned user);

// Whether `name`, "drun/UID/PID/RANDOM", is a socket of the agent with this pid.
bool is_socket_of(std::string_view name, int agent_pid);

// The socket of the agent with this pid whose first word is `word` ("drun", "drun-stacks" ...);
// empty if it has none.
std::string socket_of(const std::string& word, int agent_pid);

// The agent's answer. Empty if the agent has exited, is not trusted, or does not answer in time.
// `request`: for a socket that expects one (StatusSocket::Requests::Line).
std::string ask_agent(const std::string& name, std::chrono::milliseconds limit,
                      const std::string& request = {});

// Queries the agent with this pid. Also empty if there is none.
std::string ask_agent(const std::string& word, int agent_pid, std::chrono::milliseconds limit);

// --- Jobs

struct LocalAgent {
  // Of an agent that does not answer: the pids, and the run id if one of its workers runs.
  StatusNames names{};
  std::string status{};  // schema drun.status/1; empty: the agent does not answer
  bool answers() const { return !status.empty(); }
};

struct AnswerLimits {
  std::chrono::milliseconds each = std::chrono::seconds(2);
  std::optional<std::chrono::milliseconds> all{};  // later agents are left out
};

// All agents, sorted by their sockets' names.
std::vector<LocalAgent> local_agents(const AnswerLimits& limits = {});

// Those of the jobs that are called `job` (is_called), or whose --local-nodes were started by the
// drun with this pid; all without a name.
std::vector<LocalAgent> agents_called(std::vector<LocalAgent> agents,
                                      const std::optional<std::string>& job);

// "agent 4711 of night does not answer; is it suspended?"
std::string silent_text(const LocalAgent& agent);

// Those that answer, and the others.
std::vector<LocalAgent> answering(std::vector<LocalAgent> agents);
std::vector<LocalAgent> silent(std::vector<LocalAgent> agents);

// One agent of each job. Agents with the same run id that have not met others yet count as one job.
std::vector<LocalAgent> one_of_each_job(const std::vector<LocalAgent>& agents);

// How many jobs they belong to. Agents that have not met others, or do not answer, belong to the
// job with their run id, if there is one.
std::size_t job_count(const std::vector<LocalAgent>& agents);

// The status of each job, schema drun.job/1, from any of its agents. Leaves out jobs that have just
// ended.
std::vector<std::string> job_statuses(const std::vector<LocalAgent>& agents);

// The drun process of a job, which the user started: a pidfd, readable when it has ended. An empty
// one if it has ended already. Errors: System, if it is not visible here (another pid namespace).
Result<UniqueFd> open_drun(const StatusNames& names);

// Whether the process is suspended (SIGSTOP, SIGTSTP).
bool is_suspended(int pid);

// The rows of drun list: one per job, then one per agent that does not answer.
std::vector<JobRow> job_rows(const std::vector<LocalAgent>& agents);

// `no job "night" of yours runs on this machine`.
std::string no_such_job(const std::optional<std::string>& job);

// The same with the jobs that do run here, and a newline at the end. Queries them.
std::string no_such_job_but(const std::optional<std::string>& job,
                            const std::vector<LocalAgent>& all);

// "jobs on this machine:" and their rows, or nothing if there is none.
std::string listed(const std::vector<LocalAgent>& agents);

}  // namespace drun
