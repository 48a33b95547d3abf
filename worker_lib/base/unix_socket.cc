#include "worker_lib/base/unix_socket.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>

namespace drun::worker::unix_socket {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMostText = 4096;
constexpr std::size_t kMostFds = 2;

// Abstract: begins with a zero byte, and ends with the length instead of another.
struct Address {
  sockaddr_un at{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&at); }
};
std::optional<Address> address_of(const std::string& name) {
  Address address;
  if (name.size() + 1 > sizeof address.at.sun_path) {
    errno = ENAMETOOLONG;
    return std::nullopt;
  }
  address.at.sun_family = AF_UNIX;
  std::memcpy(address.at.sun_path + 1, name.data(), name.size());
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

milliseconds time_left(Deadline deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  return std::max(std::chrono::ceil<milliseconds>(left), milliseconds(0));
}

UniqueFd new_socket(int flags) {
  return UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
}

}  // namespace

std::string random_name() {
  std::array<unsigned char, 16> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw BackendFailure(WorkerError::Kind::System,
                         std::string("no random numbers: ") + std::strerror(errno));
  }
  std::string name = "drun-";
  for (const unsigned char byte : bytes) {
    name += "0123456789abcdef"[byte >> 4];
    name += "0123456789abcdef"[byte & 15];
  }
  return name;
}

UniqueFd listen_at(const std::string& name, int backlog) {
  const auto address = address_of(name);
  UniqueFd fd = new_socket(SOCK_NONBLOCK);
  if (!address || !fd || bind(fd.get(), address->get(), address->size) != 0 ||
      listen(fd.get(), backlog) != 0) {
    return {};
  }
  return fd;
}

UniqueFd accept_from(int listener) {
  return UniqueFd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
}

UniqueFd connect_to(const std::string& name, Deadline deadline) {
  const auto address = address_of(name);
  UniqueFd fd = new_socket(0);
  if (!address || !fd) return {};
  const auto left = std::max(time_left(deadline), milliseconds(1));  // 0 would be for ever
  timeval limit{};
  limit.tv_sec = static_cast<time_t>(left.count() / 1000);
  limit.tv_usec = static_cast<suseconds_t>(left.count() % 1000 * 1000);
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (connect(fd.get(), address->get(), address->size) != 0) return {};
  return fd;
}

std::optional<uid_t> peer_user(int socket) {
  ucred who{};
  socklen_t size = sizeof who;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return std::nullopt;
  return who.uid;
}

bool send_message(int socket, std::string_view text, const std::vector<int>& fds) {
  iovec bytes{.iov_base = const_cast<char*>(text.data()), .iov_len = text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostFds * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  const std::size_t fd_bytes = std::min(fds.size(), kMostFds) * sizeof(int);
  if (fd_bytes > 0) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fd_bytes);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fd_bytes);
    std::memcpy(CMSG_DATA(header), fds.data(), fd_bytes);
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(text.size());
}

std::optional<Message> receive_message(int socket) {
  Message received;
  received.text.resize(kMostText);
  iovec bytes{.iov_base = received.text.data(), .iov_len = received.text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostFds * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const auto receive = [&] { return recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC); };
  ssize_t count = receive();
  // A peer that closes before it has read everything causes this once; what it sent comes next.
  if (count < 0 && errno == ECONNRESET) count = receive();
  if (count <= 0) return std::nullopt;
  received.text.resize(static_cast<std::size_t>(count));
  received.lacks_fds = (message.msg_flags & MSG_CTRUNC) != 0;  // there is room for all
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr;
       each = CMSG_NXTHDR(&message, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= each->cmsg_len; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, reinterpret_cast<const char*>(each) + at, sizeof fd);
      received.fds.emplace_back(fd);
    }
  }
  return received;
}

bool await_readable(const std::vector<int>& fds, Deadline deadline) {
  std::vector<pollfd> waiting;
  waiting.reserve(fds.size());
  for (const int fd : fds) waiting.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  while (true) {
    constexpr milliseconds kMost(1000 * 1000);  // poll's are an int
    const auto left = std::min(time_left(deadline), kMost);
    const int ready = poll(waiting.data(), waiting.size(), static_cast<int>(left.count()));
    if (ready > 0) return true;
    if (left.count() == 0) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

}  // namespace drun::worker::unix_socket
