#include "agent/process/host_slot.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace drun::agent {
namespace {

constexpr int kMostSlots = 1024;

// FNV-1a: names have a hundred bytes, run ids may have more.
std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

bool bind_name(int fd, const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t size = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), size);  // a first byte of 0: abstract, unix(7)
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
  return bind(fd, reinterpret_cast<const sockaddr*>(&address), bytes) == 0;
}

}  // namespace

HostSlot HostSlot::take(const std::string& job) {
  const std::string place =
      "drun-slot/" + std::to_string(getuid()) + "/" + std::to_string(hash_of(job)) + "/";
  UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  for (int number = 0; fd && number < kMostSlots; ++number) {
    if (bind_name(fd.get(), place + std::to_string(number))) return {std::move(fd), number};
    if (errno != EADDRINUSE) break;
  }
  return {UniqueFd(), static_cast<int>(getpid())};
}

}  // namespace drun::agent
