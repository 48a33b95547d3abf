#include "launcher/commands/show_status.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "launcher/commands/local_jobs.h"
#include "launcher/report/status_text.h"
#include "rendezvous/net/asio.h"

namespace drun {
namespace {

std::vector<std::string> statuses_of(const StatusCommand& command) {
  std::vector<LocalAgent> agents = answering(agents_called(local_agents(), command.job));
  if (!command.is_node) return job_statuses(agents);
  std::vector<std::string> statuses;
  statuses.reserve(agents.size());
  for (LocalAgent& agent : agents) statuses.push_back(std::move(agent.status));
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
    const std::vector<std::string> statuses = statuses_of(command);
    if (statuses.empty()) break;
    has_shown = true;
    const std::string text = shown(command, statuses);
    std::fputs((repaints ? "\x1b[H\x1b[2J" + text : text).c_str(), stdout);
    if (std::fflush(stdout) != 0 || !command.is_live) return 0;
    pause.expires_after(std::chrono::seconds(1));
    pause.wait();
  }
  if (has_shown) return 0;
  std::fprintf(stderr, "drun status: %s\n", no_such_job(command.job).c_str());
  return 1;
}

}  // namespace drun
