// core. host:port, as users write it and as messages show it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace drun {

struct Endpoint {
  std::string host;  // name, IPv4 or IPv6 without brackets
  std::uint16_t port = 0;
  bool operator==(const Endpoint&) const = default;
};

// "host", "[v6]".
std::string bracketed_host(const std::string& host);
// "host:port", "[v6]:port".
std::string to_string(const Endpoint& endpoint);
// "a:29400,b:29400"
std::string to_string(const std::vector<Endpoint>& endpoints);

// The addresses of an endpoint's host as that host reported them, best first: numeric ones, and
// names that are looked up. They are used instead of the endpoint's name, which may be unknown
// here.
struct KnownAddresses {
  Endpoint endpoint{};
  std::vector<std::string> addresses{};
  bool has_loopback = false;  // all nodes are on this machine: also try loopback addresses
  bool operator==(const KnownAddresses&) const = default;
};
using AddressBook = std::vector<KnownAddresses>;

// Null: only the endpoint's own name is known.
const KnownAddresses* find_addresses(const AddressBook& book, const Endpoint& endpoint);

// "10.0.0.1:4711, 10.1.0.1:4711", or the endpoint itself.
std::string addresses_text(const AddressBook& book, const Endpoint& endpoint);

// "name", "10.0.0.1", "fe80::1": what a host name or an address may consist of, at most 255 bytes.
bool is_host_text(std::string_view text);

// A socket that listens at an endpoint of this host. The receiver closes it.
struct ListeningFd {
  int fd = -1;
  bool is_v6 = false;
  bool operator==(const ListeningFd&) const = default;
};

// Whether `host` is a loopback name or address.
inline bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// "host", "host:port", "[v6]", "[v6]:port"; an unbracketed text with two colons or more is split at
// the last one, as torchrun does, unless the whole is an IPv6 address. Without a port:
// `default_port`. Errors: Usage, naming the text and the reason.
Result<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port);

// A port that all processes of a job can derive from the job's name alone. The range lies above the
// ports that Linux gives to outgoing connections by default (32768 to 60999).
inline constexpr std::uint16_t kFirstDerivedPort = 61440;
inline constexpr std::uint16_t kDerivedPorts = 4096;
std::uint16_t derived_port(std::string_view job);

}  // namespace drun
