#include "agent/spawn/child_descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "agent/spawn/raw_syscall.h"
#include "rendezvous/base/text.h"

namespace drun::agent {

std::optional<std::uint64_t> raise_descriptor_limit() {
  rlimit before{};
  if (getrlimit(RLIMIT_NOFILE, &before) != 0 || before.rlim_cur >= before.rlim_max)
    return std::nullopt;
  rlimit raised = before;
  raised.rlim_cur = before.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &raised) != 0) return std::nullopt;
  return before.rlim_cur;
}

namespace {

constexpr unsigned kCloseRangeUnshare = 1U << 1;  // <linux/close_range.h>, which old systems lack

struct DirectoryCloser {
  void operator()(DIR* directory) const { closedir(directory); }
};

// Those above 2 that exec would keep open, in order; absent: /proc cannot be read.
std::optional<std::vector<unsigned>> inherited() {
  const std::unique_ptr<DIR, DirectoryCloser> directory(opendir("/proc/self/fd"));
  if (!directory) return std::nullopt;
  std::vector<unsigned> found;
  while (const dirent* const entry = readdir(directory.get())) {
    const auto fd = whole_number<int>(entry->d_name);  // not "." and ".."
    if (!fd) continue;
    const int flags = fcntl(*fd, F_GETFD);
    if (*fd > STDERR_FILENO && flags >= 0 && (flags & FD_CLOEXEC) == 0)
      found.push_back(static_cast<unsigned>(*fd));
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Closes none: there is no such descriptor.
bool has_close_range() { return syscall(SYS_close_range, UINT_MAX, UINT_MAX, 0) == 0; }

// All but 0, 1, 2 and `kept` (sorted), the highest first.
std::vector<ChildDescriptors::Range> all_but(const std::vector<unsigned>& kept) {
  std::vector<ChildDescriptors::Range> ranges;
  unsigned next = STDERR_FILENO + 1;
  for (const unsigned fd : kept) {
    if (fd > next) ranges.push_back({next, fd - 1});
    next = std::max(next, fd + 1);
  }
  ranges.push_back({next, UINT_MAX});
  std::reverse(ranges.begin(), ranges.end());
  return ranges;
}

}  // namespace

ChildDescriptors::ChildDescriptors(std::size_t slots) {
  const std::optional<std::vector<unsigned>> users = inherited();
  if (!users || !has_close_range()) return;
  null_ = UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC));
  while (slots_.size() < slots) {
    Slot slot;
    std::vector<unsigned> kept = *users;
    slot.low = UniqueFd(fcntl(null_.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    if (!slot.low) return;  // a low limit of descriptors: fewer slots
    kept.push_back(static_cast<unsigned>(slot.low.get()));
    std::sort(kept.begin(), kept.end());
    slot.ours = all_but(kept);
    slots_.push_back(std::move(slot));
  }
}

bool ChildDescriptors::lay_out(std::size_t slot, int socket) const {
  return dup3(socket, laid_out(slot), O_CLOEXEC) >= 0;
}

void close_descriptors(unsigned first, unsigned last) {
  if (first > last || syscall(SYS_close_range, first, last, 0) == 0) return;
  rlimit limit{};
  constexpr rlim_t kMost = 1U << 20;
  const rlim_t end =
      getrlimit(RLIMIT_NOFILE, &limit) == 0 ? std::min(limit.rlim_max, kMost) : kMost;
  for (unsigned fd = first; fd <= last && fd < end; ++fd) close(static_cast<int>(fd));
}

int leave_descriptors(std::span<const ChildDescriptors::Range> ours) {
  bool is_own = false;
  for (const ChildDescriptors::Range& range : ours) {
    // Nothing of the first range is even copied, where the kernel can do that.
    long result = raw_syscall(SYS_close_range, range.first, range.last,
                              is_own ? 0 : static_cast<long>(kCloseRangeUnshare));
    if (result < 0 && !is_own) {
      if (const long unshared = raw_syscall(SYS_unshare, CLONE_FILES); unshared < 0)
        return static_cast<int>(-unshared);
      result = raw_syscall(SYS_close_range, range.first, range.last);
    }
    if (result < 0) return static_cast<int>(-result);
    is_own = true;
  }
  return 0;
}

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
