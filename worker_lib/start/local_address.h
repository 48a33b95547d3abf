// edge. The address of this machine that the other ranks should connect to.
// Thread: any.   Blocks: name resolution.
#pragma once

#include <cstdint>
#include <string>

#include "rendezvous/base/result.h"

namespace drun::worker {

struct LocalAddress {
  std::string text;  // numeric, with a scope where one is needed
  bool is_loopback = false;
  bool is_ipv6 = false;
  bool operator==(const LocalAddress&) const = default;
};

// From which this machine would send to `host`; nothing is sent. Errors: Unreachable.
Result<LocalAddress> address_towards(const std::string& host, std::uint16_t port);

// The first of this interface, IPv4 if it has one. Errors: Usage, with the interfaces there are.
Result<LocalAddress> address_of_interface(const std::string& name);

}  // namespace drun::worker
