#include "tests/support/machine.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <mutex>
#include <stdexcept>
#include <string>

namespace drun::test {
namespace {

// Above the services with fixed ports, below torchrun's 29400 and 29500, which are drun's defaults.
constexpr int kLowest = 10'000;
constexpr int kHighest = 29'000;

// Linux's default range is 32768 to 60999. If it begins below our range, the blocks cannot stay
// below it, and free_port() relies on its check of each port.
int end_of_range() {
  int lowest_ephemeral = kHighest;
  if (std::FILE* const file = std::fopen("/proc/sys/net/ipv4/ip_local_port_range", "re")) {
    if (std::fscanf(file, "%d", &lowest_ephemeral) != 1) lowest_ephemeral = kHighest;
    std::fclose(file);
  }
  const int end = std::min(kHighest, lowest_ephemeral);
  return end >= kLowest + 20 * PortBlock::kSize ? end : kHighest;
}

// Binds a name in the abstract namespace of unix sockets (unix(7)). It is a lock that the kernel
// releases when the last descriptor closes. Like ports, it is per network namespace. The descriptor
// is deliberately left open.
bool lock_block(int number) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "drun-test-ports-" + std::to_string(number);
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0) return true;
  close(fd);
  return false;
}

template <typename Address>
bool can_bind(int family, const Address& address) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno == EAFNOSUPPORT;
  const int on = 1;
  if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  const bool is_bound = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return is_bound;
}

bool is_unused(std::uint16_t port) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  return can_bind(AF_INET, v4) && can_bind(AF_INET6, v6);
}

}  // namespace

PortBlock take_port_block() {
  const int count = (end_of_range() - kLowest) / PortBlock::kSize;
  const int start = getpid() % count;
  for (int i = 0; i < count; ++i) {
    const int number = (start + i) % count;
    if (lock_block(number))
      return {static_cast<std::uint16_t>(kLowest + number * PortBlock::kSize)};
  }
  throw std::runtime_error("no block of ports is free for this test");
}

std::uint16_t free_port() {
  static std::mutex mutex;
  static PortBlock block;
  static int used = PortBlock::kSize;
  static pid_t owner = 0;
  const std::lock_guard lock(mutex);
  while (true) {
    // A forked child must not continue in its parent's block, because the parent does not see which
    // ports the child takes.
    if (used == PortBlock::kSize || owner != getpid()) {
      block = take_port_block();
      owner = getpid();
      used = 0;
    }
    const auto port = static_cast<std::uint16_t>(block.first + used++);
    if (is_unused(port)) return port;
  }
}

}  // namespace drun::test
