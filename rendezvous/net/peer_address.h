// edge. Where a connection comes from, in the forms that others compare; and how many descriptors
// there are for all of them.
// Thread: any.   Errors: none.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "rendezvous/net/asio.h"

namespace drun::rendezvous {

// "10.0.0.7", also for IPv4 within IPv6; IPv6 without its zone.
std::string plain_address(const asio::ip::address& address);
// The same for a text from outside; empty: not the address of a host (0.0.0.0, multicast).
std::string plain_address(std::string_view text);

// The unit for counting clients: an IPv4 address, an IPv6 network of 64 bits (a host may have all
// of it).
std::string origin_of(const asio::ip::address& address);

// RLIMIT_NOFILE as it is.
std::size_t descriptor_limit();

}  // namespace drun::rendezvous
