// edge. Addresses of peers in comparable forms, and the limit of descriptors.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "rendezvous/net/asio.h"

namespace drun::rendezvous {

// "10.0.0.7", also for IPv4 within IPv6; IPv6 without its zone.
std::string plain_address(const asio::ip::address& address);
// The same for text from another node; empty if it is not the address of a host (0.0.0.0,
// multicast).
std::string plain_address(std::string_view text);

// With the port: "10.0.0.7:4000", "[::ffff:10.0.0.7]:4000".
std::string peer_text(const asio::ip::tcp::endpoint& peer);

// The unit for counting clients: an IPv4 address, or an IPv6 /64 network, all of which one host may
// have.
std::string origin_of(const asio::ip::address& address);

// The current RLIMIT_NOFILE.
std::size_t descriptor_limit();

}  // namespace drun::rendezvous
