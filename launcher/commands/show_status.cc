#include "launcher/commands/show_status.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/commands/ask_agents.h"
#include "launcher/report/status_text.h"
#include "rendezvous/net/asio.h"

namespace drun {
namespace {

constexpr std::chrono::seconds kTimeForOne{2};
constexpr std::chrono::seconds kTimeForJob{5};  // agents answer within 3 s

struct Said {
  StatusNames names;
  std::string status;
};

// The selected agents of this machine.
std::vector<Said> agents(const StatusCommand& command) {
  std::vector<Said> found;
  for (const std::string& name : agent_sockets("drun")) {
    std::string status = ask_agent(name, kTimeForOne);
    const Result<StatusNames> names = status_names(status);
    if (!names || (command.job && !is_called(*names, *command.job))) continue;
    found.push_back({*names, std::move(status)});
  }
  return found;
}

// One status per job; any of its agents can provide it.
std::vector<std::string> jobs(const std::vector<Said>& agents) {
  std::vector<std::string> statuses;
  std::set<std::pair<std::string, std::string>> seen;
  for (const auto& [names, status] : agents) {
    const std::pair job(names.run_id, names.meeting_point);
    if (names.has_met() && seen.contains(job)) continue;
    std::string said = ask_agent("drun-job", names.agent_pid, kTimeForJob);
    if (!is_job_status(said)) continue;  // it has just ended or does not respond
    statuses.push_back(std::move(said));
    seen.insert(job);
  }
  return statuses;
}

std::vector<std::string> statuses_of(const StatusCommand& command,
                                     const std::vector<Said>& agents) {
  if (!command.is_node) return jobs(agents);
  std::vector<std::string> statuses;
  statuses.reserve(agents.size());
  for (const Said& said : agents) statuses.push_back(said.status);
  return statuses;
}

std::string shown(const StatusCommand& command, const std::vector<std::string>& statuses) {
  std::string text;
  for (const std::string& status : statuses) {
    if (!text.empty() && !command.is_json) text += '\n';
    if (command.is_json)
      text += status;
    else
      text += command.is_node ? status_text(status) : job_text(status);
  }
  return text;
}

}  // namespace

int show_status(const StatusCommand& command, const HostFacts& host) {
  // Repaints from the top of the screen and clears the rest of the previous output.
  const bool repaints = command.is_live && !command.is_json && isatty(STDOUT_FILENO) == 1 &&
                        variable(host, "TERM").value_or("dumb") != "dumb";
  asio::io_context io(1);
  asio::steady_timer pause(io);
  bool has_shown = false;
  while (true) {
    const std::vector<std::string> statuses = statuses_of(command, agents(command));
    if (statuses.empty()) break;
    has_shown = true;
    const std::string text = shown(command, statuses);
    std::fputs((repaints ? "\x1b[H\x1b[2J" + text : text).c_str(), stdout);
    if (std::fflush(stdout) != 0 || !command.is_live) return 0;
    pause.expires_after(std::chrono::seconds(1));
    pause.wait();
  }
  if (has_shown) return 0;
  const std::string which =
      command.job ? "no job \"" + *command.job + "\" of yours" : "no job of yours";
  std::fprintf(stderr, "drun status: %s runs on this machine\n", which.c_str());
  return 1;
}

}  // namespace drun
