#include "launcher/commands/local_jobs.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "agent/process/descendants.h"
#include "launcher/base/words.h"
#include "launcher/facts/files.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/unique_fd.h"

namespace drun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostBytes = 4 << 20;

// The owner of an agent's socket, by its name: "drun/UID/PID/RANDOM".
struct SocketOwner {
  unsigned user = 0;
  int agent_pid = 0;
};
std::optional<SocketOwner> owner_of(std::string_view name) {
  const std::vector<std::string_view> parts = split(name, '/');
  if (parts.size() < 4) return std::nullopt;
  const auto user = whole_number<unsigned>(parts[1]);
  const auto agent_pid = whole_number<int>(parts[2]);
  if (!user || !agent_pid) return std::nullopt;
  return SocketOwner{*user, *agent_pid};
}

// The listening process must belong to the user in the socket's name.
bool is_honest(int fd, const std::string& name) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  const auto owner = owner_of(name);
  return owner && owner->user == peer.uid;
}

std::string read_all(int fd, std::chrono::milliseconds limit) {
  std::string text;
  const Clock::time_point deadline = Clock::now() + limit;
  while (text.size() < kMostBytes) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd readable{.fd = fd, .events = POLLIN, .revents = 0};
    if (left.count() <= 0 || poll(&readable, 1, static_cast<int>(left.count())) <= 0) return "";
    char bytes[16384];
    const ssize_t count = ::read(fd, bytes, sizeof(bytes));
    if (count == 0) return text;
    if (count < 0) return "";
    text.append(bytes, static_cast<std::size_t>(count));
  }
  return "";
}

// Of this user, or of any user for root.
std::vector<std::string> agent_sockets(const std::string& word) {
  std::ifstream list("/proc/net/unix");
  return sockets_in(list, word, geteuid());
}

constexpr std::chrono::seconds kTimeForJob{5};  // agents answer within 3 s

std::string proc_file(int pid, const std::string& name) {
  return text_of_file("/proc/" + std::to_string(pid) + "/" + name);
}

// The variable of a worker; its agent is its parent.
std::string run_id_of_workers(int agent_pid) {
  const std::string pid = std::to_string(agent_pid);
  std::istringstream children(proc_file(agent_pid, "task/" + pid + "/children"));
  constexpr std::string_view kVariable = "TORCHELASTIC_RUN_ID=";
  for (int child = 0; children >> child;) {
    std::istringstream variables(proc_file(child, "environ"));
    for (std::string variable; std::getline(variables, variable, '\0');)
      if (variable.starts_with(kVariable)) return variable.substr(kVariable.size());
  }
  return {};
}

// Of the child of a guardian: an agent, or the launcher of --local-nodes.
bool is_guarded(int pid) { return proc_file(pid, "comm") == "drun-agent\n"; }

std::optional<agent::ProcessStat> process_stat(int pid) {
  agent::ProcessStat stat;
  const std::string text = proc_file(pid, "stat");
  return !text.empty() && agent::parse_stat(text, stat) ? std::optional(stat) : std::nullopt;
}

// What /proc shows of the agent with this socket. Nothing if that process has ended, is in another
// pid namespace, or is not an agent of this user.
std::optional<StatusNames> names_in_proc(std::string_view socket) {
  const auto owner = owner_of(socket);
  struct stat about {};
  if (!owner || stat(("/proc/" + std::to_string(owner->agent_pid)).c_str(), &about) != 0 ||
      about.st_uid != owner->user || !is_guarded(owner->agent_pid))
    return std::nullopt;
  const auto agent = process_stat(owner->agent_pid);
  if (!agent) return std::nullopt;
  return StatusNames{.run_id = run_id_of_workers(owner->agent_pid),
                     .agent_pid = owner->agent_pid,
                     .drun_pid = agent->parent,
                     .meeting_point = "null null"};
}

// Whether this is the pid of the drun with --local-nodes that started this node's drun, through its
// launcher.
bool is_started_by(const StatusNames& names, std::string_view pid) {
  const auto drun = process_stat(names.drun_pid);
  const auto launcher = drun ? process_stat(drun->parent) : std::nullopt;
  return launcher && is_guarded(drun->parent) && pid == std::to_string(launcher->parent);
}

}  // namespace

std::vector<std::string> sockets_in(std::istream& list, const std::string& word, unsigned user) {
  const std::string mine = "@" + word + "/" + (user == 0 ? "" : std::to_string(user) + "/");
  std::vector<std::string> names;
  for (std::string line; std::getline(list, line);) {
    const std::size_t at = line.find(" @" + word + "/");
    if (at == line.npos || !line.substr(at + 1).starts_with(mine)) continue;
    names.push_back(line.substr(at + 2));
  }
  std::sort(names.begin(), names.end());  // each name is listed again for every connection
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

bool is_socket_of(std::string_view name, int agent_pid) {
  const auto owner = owner_of(name);
  return owner && owner->agent_pid == agent_pid;
}

std::string socket_of(const std::string& word, int agent_pid) {
  for (const std::string& name : agent_sockets(word))
    if (is_socket_of(name, agent_pid)) return name;
  return "";
}

std::string ask_agent(const std::string& name, std::chrono::milliseconds limit,
                      const std::string& request) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof(address.sun_path)) return "";
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // A local connect does not block; EAGAIN means that the agent has too many clients.
  if (!socket || connect(socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) return "";
  if (!is_honest(socket.get(), name)) return "";
  // A request is short: an empty socket takes all of it. Without one, the agent may have answered
  // and closed its end already, where even an empty send fails.
  if (!request.empty() && send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
                              static_cast<ssize_t>(request.size()))
    return "";
  return read_all(socket.get(), limit);
}

std::string ask_agent(const std::string& word, int agent_pid, std::chrono::milliseconds limit) {
  const std::string name = socket_of(word, agent_pid);
  return name.empty() ? "" : ask_agent(name, limit);
}

std::vector<LocalAgent> local_agents(const AnswerLimits& limits) {
  const auto began = std::chrono::steady_clock::now();
  std::vector<LocalAgent> found;
  for (const std::string& name : agent_sockets("drun")) {
    auto limit = limits.each;
    if (limits.all) {
      const auto left = *limits.all - (std::chrono::steady_clock::now() - began);
      limit = std::min(limit, std::chrono::duration_cast<std::chrono::milliseconds>(left));
      if (limit.count() <= 0) break;
    }
    std::string status = ask_agent(name, limit);
    if (const Result<StatusNames> names = status_names(status))
      found.push_back({*names, std::move(status)});
    else if (const auto silent = names_in_proc(name))
      found.push_back({*silent, ""});
  }
  return found;
}

std::vector<LocalAgent> agents_called(std::vector<LocalAgent> agents,
                                      const std::optional<std::string>& job) {
  if (!job) return agents;
  std::vector<LocalAgent> called;
  for (const auto is_meant : {is_called, is_started_by}) {
    if (called.empty())
      std::copy_if(agents.begin(), agents.end(), std::back_inserter(called),
                   [&](const LocalAgent& agent) { return is_meant(agent.names, *job); });
  }
  return called;
}

std::string silent_text(const LocalAgent& agent) {
  const std::string& run_id = agent.names.run_id;
  return "agent " + std::to_string(agent.names.agent_pid) +
         (run_id.empty() ? "" : " of " + printable(run_id)) + " does not answer; is it suspended?";
}

std::vector<LocalAgent> answering(std::vector<LocalAgent> agents) {
  std::erase_if(agents, [](const LocalAgent& agent) { return !agent.answers(); });
  return agents;
}

std::vector<LocalAgent> silent(std::vector<LocalAgent> agents) {
  std::erase_if(agents, [](const LocalAgent& agent) { return agent.answers(); });
  return agents;
}

std::vector<LocalAgent> one_of_each_job(const std::vector<LocalAgent>& agents) {
  std::vector<LocalAgent> found;
  std::set<std::pair<std::string, std::string>> seen;
  for (const LocalAgent& agent : agents) {
    if (seen.emplace(agent.names.run_id, agent.names.meeting_point).second) found.push_back(agent);
  }
  return found;
}

std::size_t job_count(const std::vector<LocalAgent>& agents) {
  std::set<std::pair<std::string, std::string>> jobs;
  std::set<std::string> run_ids;
  for (const auto& [names, status] : agents) {
    if (!names.has_met()) continue;
    jobs.emplace(names.run_id, names.meeting_point);
    run_ids.insert(names.run_id);
  }
  for (const auto& [names, status] : agents) {
    // Without a run id it is not known to be one of the others.
    const std::string id = names.run_id.empty() ? std::to_string(names.agent_pid) : names.run_id;
    if (!names.has_met() && run_ids.insert(id).second) jobs.emplace(id, "");
  }
  return jobs.size();
}

std::vector<std::string> job_statuses(const std::vector<LocalAgent>& agents) {
  std::vector<std::string> statuses;
  std::set<std::pair<std::string, std::string>> seen;
  for (const auto& [names, status] : agents) {
    const std::pair job(names.run_id, names.meeting_point);
    if (status.empty() || (names.has_met() && seen.contains(job))) continue;
    std::string answer = ask_agent("drun-job", names.agent_pid, kTimeForJob);
    if (!is_job_status(answer)) continue;  // it has just ended or does not respond
    statuses.push_back(std::move(answer));
    seen.insert(job);
  }
  return statuses;
}

Result<UniqueFd> open_drun(const StatusNames& names) {
  UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, names.drun_pid, 0)));
  if (!pidfd && errno != ESRCH)
    return system_error("open process " + std::to_string(names.drun_pid), errno);
  // Checked once it is open: the number may have a new owner.
  const auto agent = process_stat(names.agent_pid);
  if (!pidfd || !agent) return UniqueFd();
  if (agent->parent == names.drun_pid) return pidfd;
  return Error{ErrorCode::System, "process " + std::to_string(names.drun_pid) +
                                      " is not the parent of its agent here; if the job runs in a "
                                      "container, run this command inside it"};
}

bool is_suspended(int pid) {
  const auto stat = process_stat(pid);
  return stat && stat->state == 'T';
}

std::vector<JobRow> job_rows(const std::vector<LocalAgent>& agents) {
  std::vector<JobRow> rows;
  for (const std::string& status : job_statuses(agents))
    if (std::optional<JobRow> row = job_row(status)) rows.push_back(*std::move(row));
  for (const LocalAgent& agent : silent(agents)) rows.push_back(silent_row(agent.names));
  return rows;
}

std::string no_such_job(const std::optional<std::string>& job) {
  return (job ? "no job \"" + *job + "\" of yours" : "no job of yours") + " runs on this machine";
}

std::string listed(const std::vector<LocalAgent>& agents) {
  const std::vector<JobRow> rows = job_rows(agents);
  return rows.empty() ? "" : "jobs on this machine:\n" + job_table(rows, std::nullopt);
}

std::string no_such_job_but(const std::optional<std::string>& job,
                            const std::vector<LocalAgent>& all) {
  const std::string jobs = listed(all);
  return no_such_job(job) + (jobs.empty() ? "\n" : "; " + jobs);
}

}  // namespace drun
