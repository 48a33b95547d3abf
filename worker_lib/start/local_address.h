// edge. Determines the address of this machine that other ranks should connect to.
// Thread: any.   Blocks: name resolution.
#pragma once

#include <cstdint>
#include <string>

#include "rendezvous/base/result.h"

namespace drun::worker {

struct LocalAddress {
  std::string text;  // numeric, with a scope if needed
  bool is_loopback = false;
  bool is_ipv6 = false;
  bool operator==(const LocalAddress&) const = default;
};

// The address from which this machine would send to `host`. Sends nothing. Errors: Unreachable.
Result<LocalAddress> address_towards(const std::string& host, std::uint16_t port);

// The first address of this interface, IPv4 if it has one. Errors: Usage, with the existing
// interfaces.
Result<LocalAddress> address_of_interface(const std::string& name);

// The interface with this numeric address; empty: none.
std::string interface_with(const std::string& address);

}  // namespace drun::worker
