#include "rendezvous/listen_sockets.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>

namespace drun::rendezvous {
namespace {

// Tried when a free port of one address family turns out to be taken in the other.
constexpr int kPortTries = 16;

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  bool takes_both_families = false;

  bool is_v6() const { return storage.ss_family == AF_INET6; }
};

Address v4(in_addr host, std::uint16_t port) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  in.sin_addr = host;
  Address address{.size = sizeof(in)};
  std::memcpy(&address.storage, &in, sizeof(in));
  return address;
}

Address v6(const in6_addr& host, std::uint16_t port, bool takes_both_families) {
  sockaddr_in6 in{};
  in.sin6_family = AF_INET6;
  in.sin6_port = htons(port);
  in.sin6_addr = host;
  Address address{.size = sizeof(in), .takes_both_families = takes_both_families};
  std::memcpy(&address.storage, &in, sizeof(in));
  return address;
}

std::uint16_t port_of(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size);
  // The port is at the same place in both families.
  sockaddr_in in{};
  std::memcpy(&in, &storage, sizeof(in));
  return ntohs(in.sin_port);
}

// One more listening socket among `sockets`, whose port becomes its own; 0, or errno.
int listen_on(const Address& address, ListenSockets& sockets) {
  UniqueFd owned(
      socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  const int fd = owned.get();
  const int on = 1;
  const int is_v6_only = address.takes_both_families ? 0 : 1;
  // TCP_NODELAY is inherited by what is accepted: a system call less for each connection.
  const bool is_good =
      fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0 &&
      (!address.is_v6() ||
       setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &is_v6_only, sizeof(is_v6_only)) == 0) &&
      bind(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0 &&
      // The kernel cuts it down to somaxconn.
      listen(fd, 1 << 20) == 0;
  if (!is_good) return errno;
  sockets.port = port_of(fd);
  sockets.sockets.push_back({.fd = std::move(owned), .is_v6 = address.is_v6()});
  return 0;
}

Error cannot_listen(std::uint16_t port, int error_number) {
  const std::string which = port == 0 ? "any port" : "port " + std::to_string(port);
  std::string remedy;
  if (error_number == EADDRINUSE)
    remedy = "; another run on this machine? choose another --master-port";
  if (error_number == EACCES)
    remedy = "; ports below 1024 need privileges, choose another --master-port";
  return Error{ErrorCode::System,
               "cannot listen on " + which + ": " + system_message(error_number) + remedy};
}

bool is_missing_family(int error_number) {
  return error_number == EAFNOSUPPORT || error_number == EADDRNOTAVAIL ||
         error_number == EPROTONOSUPPORT;
}

Result<ListenSockets> listen_everywhere(std::uint16_t port) {
  ListenSockets sockets;
  int error_number = listen_on(v6(in6addr_any, port, true), sockets);
  if (is_missing_family(error_number)) {
    error_number = listen_on(v4(in_addr{.s_addr = htonl(INADDR_ANY)}, port), sockets);
  }
  if (error_number != 0) return cannot_listen(port, error_number);
  return sockets;
}

// A literal of this host's loopback that 127.0.0.1 and ::1 do not cover.
Result<std::optional<in_addr>> extra_loopback(const std::string& literal) {
  in_addr host{};
  if (literal.empty() || literal == "::1") return std::optional<in_addr>();
  if (inet_pton(AF_INET, literal.c_str(), &host) != 1 || ntohl(host.s_addr) >> 24 != 127) {
    return Error{ErrorCode::Usage, "\"" + literal + "\" is not a loopback address; use 127.0.0.1"};
  }
  if (ntohl(host.s_addr) == INADDR_LOOPBACK) return std::optional<in_addr>();
  return std::optional<in_addr>(host);
}

// The port's number in an Error would not help: which of the addresses failed decides what is next.
int listen_on_loopback(std::uint16_t port, const std::optional<in_addr>& extra,
                       ListenSockets& sockets) {
  int error_number = listen_on(v4(in_addr{.s_addr = htonl(INADDR_LOOPBACK)}, port), sockets);
  if (error_number != 0) return error_number;
  error_number = listen_on(v6(in6addr_loopback, sockets.port, false), sockets);
  if (error_number != 0 && !is_missing_family(error_number)) return error_number;
  return extra ? listen_on(v4(*extra, sockets.port), sockets) : 0;
}

}  // namespace

Result<ListenSockets> open_listen_sockets(const ListenSpec& spec) {
  if (!spec.loopback_only) return listen_everywhere(spec.port);
  const Result<std::optional<in_addr>> extra = extra_loopback(spec.loopback_host);
  if (!extra) return extra.error();
  const int tries = spec.port == 0 ? kPortTries : 1;
  int error_number = 0;
  for (int i = 0; i < tries; ++i) {
    ListenSockets sockets;
    error_number = listen_on_loopback(spec.port, *extra, sockets);
    if (error_number == 0) return sockets;
    if (error_number != EADDRINUSE) break;
  }
  return cannot_listen(spec.port, error_number);
}

}  // namespace drun::rendezvous
