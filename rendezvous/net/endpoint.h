// core. host:port, as users write it and as messages show it.
// Owner: a value.  Thread: any.
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

// "host:port", "[v6]:port".
std::string to_string(const Endpoint& endpoint);
// "a:29400,b:29400"
std::string to_string(const std::vector<Endpoint>& endpoints);

// A name or address by which each machine means itself.
inline bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// "host", "host:port", "[v6]", "[v6]:port"; an unbracketed text with two colons or more is split at
// the last one, as torchrun does, unless the whole is an IPv6 address. Without a port:
// `default_port`. Errors: Usage, naming the text and the reason.
Result<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port);

}  // namespace drun
