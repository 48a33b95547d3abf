#include "launcher/commands/ask_agents.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>

#include "rendezvous/base/unique_fd.h"

namespace drun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostBytes = 4 << 20;

// The listening process must belong to the user in the socket's name.
bool is_honest(int fd, const std::string& name) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  const std::size_t word_end = std::min(name.find('/'), name.size());
  return std::string_view(name).substr(word_end).starts_with("/" + std::to_string(peer.uid) + "/");
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
  const std::size_t user = name.find('/');
  const std::size_t pid = user == name.npos ? user : name.find('/', user + 1);
  return pid != name.npos && name.substr(pid + 1).starts_with(std::to_string(agent_pid) + "/");
}

std::vector<std::string> agent_sockets(const std::string& word) {
  std::ifstream list("/proc/net/unix");
  return sockets_in(list, word, geteuid());
}

std::string ask_agent(const std::string& name, std::chrono::milliseconds limit) {
  return ask_agent(name, limit, "");
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
  for (const std::string& name : agent_sockets(word)) {
    if (is_socket_of(name, agent_pid)) return ask_agent(name, limit);
  }
  return "";
}

}  // namespace drun
