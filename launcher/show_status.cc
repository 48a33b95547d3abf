#include "launcher/show_status.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "launcher/ask_agents.h"
#include "launcher/status_text.h"
#include "rendezvous/asio.h"

namespace drun {
namespace {

constexpr std::chrono::seconds kTimeForOne{2};

bool is_meant(const StatusCommand& command, const std::string& status) {
  const Result<StatusNames> names = status_names(status);
  if (!names) return false;
  return !command.job || is_called(*names, *command.job);
}

std::vector<std::string> jobs(const StatusCommand& command) {
  std::vector<std::string> statuses;
  for (const std::string& name : agent_sockets("drun")) {
    std::string status = ask_agent(name, kTimeForOne);
    if (is_meant(command, status)) statuses.push_back(std::move(status));
  }
  return statuses;
}

std::string shown(const StatusCommand& command, const std::vector<std::string>& statuses) {
  std::string text;
  for (const std::string& status : statuses) {
    if (!text.empty() && !command.is_json) text += '\n';
    text += command.is_json ? status : status_text(status);
  }
  return text;
}

}  // namespace

int show_status(const StatusCommand& command, const HostFacts& host) {
  // From the top of the screen, what was there before cleared away behind each picture.
  const bool repaints = command.is_live && !command.is_json && isatty(STDOUT_FILENO) == 1 &&
                        variable(host, "TERM").value_or("dumb") != "dumb";
  asio::io_context io(1);
  asio::steady_timer pause(io);
  bool has_shown = false;
  while (true) {
    const std::vector<std::string> statuses = jobs(command);
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
