#include "worker_lib/start/local_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>

#include "rendezvous/base/unique_fd.h"

namespace drun::worker {
namespace {

using Interfaces = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

// Null, with errno, if they cannot be listed.
Interfaces list_interfaces() {
  ifaddrs* found = nullptr;
  return Interfaces(getifaddrs(&found) == 0 ? found : nullptr, freeifaddrs);
}

int family_of(const ifaddrs& interface) {
  return interface.ifa_addr == nullptr ? AF_UNSPEC : interface.ifa_addr->sa_family;
}

// An IPv4 or IPv6 address.
Result<LocalAddress> numeric(const sockaddr* address) {
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::array<char, NI_MAXHOST> text{};
  const int failed =
      getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  if (failed != 0) return Error{ErrorCode::System, gai_strerror(failed)};
  LocalAddress result{.text = text.data(), .is_ipv6 = address->sa_family == AF_INET6};
  if (result.is_ipv6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    result.is_loopback = IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) != 0;
  } else {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    result.is_loopback = ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  return result;
}

// Connecting a datagram socket only asks the routing table.
Result<LocalAddress> route_to(const addrinfo& target) {
  const UniqueFd fd(socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return system_error("open a socket", errno);
  sockaddr_storage local{};
  socklen_t size = sizeof local;
  const bool is_routed = connect(fd.get(), target.ai_addr, target.ai_addrlen) == 0 &&
                         getsockname(fd.get(), reinterpret_cast<sockaddr*>(&local), &size) == 0;
  if (!is_routed) return Error{ErrorCode::Unreachable, system_message(errno)};
  return numeric(reinterpret_cast<const sockaddr*>(&local));
}

}  // namespace

Result<LocalAddress> address_towards(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failed != 0) {
    return Error{ErrorCode::Unreachable,
                 "cannot resolve MASTER_ADDR \"" + host + "\": " + gai_strerror(failed)};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, freeaddrinfo);
  Error last{ErrorCode::Unreachable, "no address"};
  for (const addrinfo* each = list.get(); each != nullptr; each = each->ai_next) {
    Result<LocalAddress> local = route_to(*each);
    if (local) return local;
    last = local.error();
  }
  return with_context(last, "no route to MASTER_ADDR \"" + host + "\"");
}

Result<LocalAddress> address_of_interface(const std::string& name) {
  const Interfaces list = list_interfaces();
  if (!list) return system_error("list network interfaces", errno);
  std::set<std::string> names;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* each = list.get(); each != nullptr; each = each->ifa_next) {
      names.insert(each->ifa_name);
      if (family_of(*each) == family && name == each->ifa_name) return numeric(each->ifa_addr);
    }
  }
  std::string there;
  for (const std::string& each : names) there += (there.empty() ? "" : ", ") + each;
  return Error{ErrorCode::Usage,
               "network interface \"" + name + "\" has no address; there are: " + there};
}

std::string interface_with(const std::string& address) {
  const Interfaces list = list_interfaces();
  for (const ifaddrs* each = list.get(); each != nullptr; each = each->ifa_next) {
    if (family_of(*each) != AF_INET && family_of(*each) != AF_INET6) continue;
    const Result<LocalAddress> own = numeric(each->ifa_addr);
    if (own && own->text == address) return each->ifa_name;
  }
  return "";
}

}  // namespace drun::worker
