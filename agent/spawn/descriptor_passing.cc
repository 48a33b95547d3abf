#include "agent/spawn/descriptor_passing.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "agent/spawn/raw_syscall.h"

namespace drun::agent {

std::optional<SocketPair> socket_pair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return std::nullopt;
  SocketPair pair{UniqueFd(ends[0]), UniqueFd(ends[1])};
  fcntl(pair.ours.get(), F_SETFL, O_NONBLOCK);
  return pair;
}

int send_descriptors(int socket, std::string_view text, std::span<const int> fds) {
  assert(!text.empty() && !fds.empty() && fds.size() <= kMostPassed);
  iovec part{.iov_base = const_cast<char*>(text.data()), .iov_len = text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostPassed * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(fds.size_bytes());
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
}

int receive_descriptors(int socket, std::array<int, 3>& fds) {
  char text = 0;
  iovec part{.iov_base = &text, .iov_len = 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof fds)> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const long count = raw_syscall(SYS_recvmsg, socket, raw_argument(&message), MSG_CMSG_CLOEXEC);
  if (count < 0) return static_cast<int>(-count);
  if (count == 0) return EPIPE;
  // The kernel passes as many as the limit on descriptors permits.
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_len != CMSG_LEN(sizeof fds)) return EMFILE;
  const auto* const passed = reinterpret_cast<const int*>(CMSG_DATA(header));
  for (std::size_t i = 0; i < fds.size(); ++i) fds[i] = passed[i];
  return 0;
}

}  // namespace drun::agent
