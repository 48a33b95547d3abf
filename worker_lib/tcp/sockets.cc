#include "worker_lib/tcp/sockets.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "rendezvous/base/text.h"
#include "worker_lib/base/process.h"

namespace drun::worker::tcp {
namespace {

using Kind = WorkerError::Kind;

constexpr int kSilence = 30;       // in seconds
constexpr int kRepeatedCalls = 4;  // after 1, 3, 7 and 15 s; an answer may take until 31 s

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;
  int family() const { return bytes.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
};

// Numeric, with a zone where there is one.
Address resolve(const std::string& address, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0 || found == nullptr)
    throw BackendFailure(Kind::System, std::nullopt,
                         "\"" + address + "\" is not an address: " + gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  Address result;
  result.size = static_cast<socklen_t>(found->ai_addrlen);
  std::memcpy(&result.bytes, found->ai_addr, result.size);
  return result;
}

UniqueFd make_socket(int family) {
  UniqueFd fd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!fd) throw system_failure("cannot make a socket");
  return fd;
}

// Short messages leave at once. Where nothing is sent, the kernel notices within kSilence that the
// other host is gone. TCP_USER_TIMEOUT would notice it by data, too, but also ends a connection to
// a rank that does not read for that long.
void set_options(int fd) {
  const auto set = [fd](int level, int name, int value) {
    setsockopt(fd, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kSilence / 2);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kSilence / 6);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_SYNCNT, kRepeatedCalls);
}

// Absent: errno has the reason.
std::optional<Address> own_address_of(int fd) {
  Address own;
  own.size = sizeof own.bytes;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own.bytes), &own.size) != 0) return std::nullopt;
  return own;
}

bool is_within_host(const Address& own, const Address& called) {
  if (called.family() == AF_INET6)
    return std::memcmp(&reinterpret_cast<const sockaddr_in6&>(own.bytes).sin6_addr,
                       &reinterpret_cast<const sockaddr_in6&>(called.bytes).sin6_addr,
                       sizeof(in6_addr)) == 0;
  const auto number = [](const Address& address) {
    return ntohl(reinterpret_cast<const sockaddr_in&>(address.bytes).sin_addr.s_addr);
  };
  return number(own) == number(called) || number(called) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET;
}

// Within a host there is no congestion. Algorithms that send by a timer, as BBR does, only delay
// what is sent. Reno does not, and is in every kernel; tcp(7), TCP_CONGESTION.
void send_at_once(int fd) {
  constexpr std::string_view kReno = "reno";
  setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kReno.data(), kReno.size());
}

std::uint16_t port_of(int fd) {
  std::optional<Address> found = own_address_of(fd);
  if (!found) throw system_failure("cannot ask for the port of a socket");
  Address& own = *found;
  return ntohs(own.family() == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(own.bytes).sin6_port
                                        : reinterpret_cast<sockaddr_in&>(own.bytes).sin_port);
}

constexpr std::string_view kProves = " proves";

}  // namespace

BackendFailure system_failure(const std::string& what) {
  return {Kind::System, std::nullopt, what + ": " + error_text(errno)};
}

std::string to_string(const Place& place) {
  std::string text = place.address + " " + std::to_string(place.port) + " ";
  for (const char byte : place.key) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  if (place.has_job_key) text += kProves;
  return text;
}

Place parse_place(std::string_view published) {
  Place place;
  std::string_view text = published;
  place.has_job_key = text.ends_with(kProves);
  if (place.has_job_key) text.remove_suffix(kProves.size());
  const std::vector<std::string_view> words = split(text, ' ');
  std::optional<Key> key;
  if (words.size() == 3) {
    place.address = words[0];
    place.port = whole_number<std::uint16_t>(words[1]).value_or(0);
    key = bytes_of_hex<sizeof(Key)>(words[2]);
  }
  if (!key || place.port == 0 || place.address.size() > kMostAddressBytes)
    throw BackendFailure(Kind::System, std::nullopt,
                         "another rank has published \"" + std::string(published.substr(0, 100)) +
                             "\" as its address, which is none; start one program with one drun");
  place.key = *key;
  return place;
}

Key make_key() {
  Key key{};
  if (getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size()))
    throw system_failure("cannot get random bytes");
  return key;
}

Listening listen_at(const std::string& address) {
  Address own = resolve(address, 0);
  Listening listening{make_socket(own.family()), 0};
  if (bind(listening.fd.get(), own.get(), own.size) != 0) {
    if (errno != EADDRNOTAVAIL) throw system_failure("cannot listen at " + address);
    // A host behind a translation of addresses.
    own = resolve(own.family() == AF_INET6 ? "::" : "0.0.0.0", 0);
    if (bind(listening.fd.get(), own.get(), own.size) != 0)
      throw system_failure("cannot listen at any address");
  }
  if (listen(listening.fd.get(), SOMAXCONN) != 0)
    throw system_failure("cannot listen at " + address);
  listening.port = port_of(listening.fd.get());
  return listening;
}

UniqueFd dial(const Place& place) {
  const Address address = resolve(place.address, place.port);
  UniqueFd fd = make_socket(address.family());
  set_options(fd.get());
  if (connect(fd.get(), address.get(), address.size) != 0 && errno != EINPROGRESS) {
    const bool is_lack = is_local_lack(errno);
    BackendFailure failure = system_failure("cannot connect to " + place.address + " port " +
                                            std::to_string(place.port));
    if (!is_lack) failure.kind = Kind::PeerLost;
    throw failure;
  }
  const std::optional<Address> own = own_address_of(fd.get());
  if (own && is_within_host(*own, address)) send_at_once(fd.get());
  return fd;
}

int error_of(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

bool is_network_error(int error) {
  return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH ||
         error == EHOSTDOWN || error == ENETDOWN;
}

void delay_acknowledgments(int fd) {
  const int is_at_once = 0;
  setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &is_at_once, sizeof is_at_once);
}

UniqueFd accept_from(int listener) {
  UniqueFd fd(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd) set_options(fd.get());
  return fd;
}

}  // namespace drun::worker::tcp
