#include "rendezvous/net/peer_address.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>
#include <sstream>

namespace drun::rendezvous {
namespace {

asio::ip::address unwrapped(const asio::ip::address& address) {
  if (!address.is_v6()) return address;
  asio::ip::address_v6 v6 = address.to_v6();
  if (v6.is_v4_mapped()) return asio::ip::make_address_v4(asio::ip::v4_mapped, v6);
  v6.scope_id(0);
  return v6;
}

}  // namespace

std::string plain_address(const asio::ip::address& address) {
  return unwrapped(address).to_string();
}

std::string plain_address(std::string_view text) {
  error_code ec;
  const asio::ip::address address = asio::ip::make_address(std::string(text), ec);
  if (ec) return {};
  const asio::ip::address plain = unwrapped(address);
  return plain.is_unspecified() || plain.is_multicast() ? std::string() : plain.to_string();
}

std::string peer_text(const asio::ip::tcp::endpoint& peer) {
  std::ostringstream text;
  text << peer;
  return text.str();
}

std::string origin_of(const asio::ip::address& address) {
  constexpr std::size_t kNetworkBytes = 8;
  const asio::ip::address plain = unwrapped(address);
  if (plain.is_v4()) {
    const auto bytes = plain.to_v4().to_bytes();
    return {bytes.begin(), bytes.end()};
  }
  const auto bytes = plain.to_v6().to_bytes();
  return {bytes.begin(), bytes.begin() + kNetworkBytes};
}

std::size_t descriptor_limit() {
  rlimit limit{};
  constexpr std::size_t kMost = std::numeric_limits<int>::max();
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMost;
  return std::min<std::size_t>(limit.rlim_cur, kMost);
}

}  // namespace drun::rendezvous
