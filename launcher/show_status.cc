#include "launcher/show_status.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "launcher/status_text.h"
#include "rendezvous/asio.h"
#include "rendezvous/unique_fd.h"

namespace drun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTimeForOne{2};
constexpr std::size_t kMostBytes = 4 << 20;

// Names of agents' sockets (agent/status_socket.h), without the '@'. Root sees everybody's.
std::vector<std::string> agents_here() {
  const std::string mine = "@drun/" + (geteuid() == 0 ? "" : std::to_string(geteuid()) + "/");
  std::vector<std::string> names;
  std::ifstream list("/proc/net/unix");
  for (std::string line; std::getline(list, line);) {
    const std::size_t at = line.find(" @drun/");
    if (at == line.npos || !line.substr(at + 1).starts_with(mine)) continue;
    names.push_back(line.substr(at + 2));
  }
  std::sort(names.begin(), names.end());  // each is listed once a connection, too
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

// Whoever listens under a name must be the user that the name tells.
bool is_honest(int fd, const std::string& name) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return name.starts_with("drun/" + std::to_string(peer.uid) + "/");
}

std::string read_all(int fd) {
  std::string text;
  const Clock::time_point deadline = Clock::now() + kTimeForOne;
  while (text.size() < kMostBytes) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd readable{.fd = fd, .events = POLLIN, .revents = 0};
    if (left.count() <= 0 || poll(&readable, 1, static_cast<int>(left.count())) <= 0) return "";
    char bytes[16384];
    const ssize_t count = read(fd, bytes, sizeof(bytes));
    if (count == 0) return text;
    if (count < 0) return "";
    text.append(bytes, static_cast<std::size_t>(count));
  }
  return "";
}

// What it says; empty: it has gone, is not what it seems, or does not answer.
std::string ask(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof(address.sun_path)) return "";
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // A local connect ends at once; EAGAIN: an agent that is asked by too many.
  if (!socket || connect(socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) return "";
  return is_honest(socket.get(), name) ? read_all(socket.get()) : "";
}

bool is_meant(const StatusCommand& command, const std::string& status) {
  const Result<StatusNames> names = status_names(status);
  if (!names) return false;
  if (!command.job) return true;
  return *command.job == names->run_id || *command.job == std::to_string(names->agent_pid) ||
         *command.job == std::to_string(names->drun_pid);
}

std::vector<std::string> jobs(const StatusCommand& command) {
  std::vector<std::string> statuses;
  for (const std::string& name : agents_here()) {
    std::string status = ask(name);
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
