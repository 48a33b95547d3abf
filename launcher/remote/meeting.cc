#include "launcher/remote/meeting.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "launcher/plan/rendezvous.h"
#include "rendezvous/base/text.h"
#include "rendezvous/net/endpoint.h"

namespace drun::hosts {
namespace {

enum class AddressKind { NotNumeric, Unusable, V4, V6 };

// Other hosts cannot reach this one at a loopback address, and link-local addresses are ambiguous.
AddressKind kind_of(const std::string& text) {
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) {
    const std::uint32_t bits = ntohl(v4.s_addr);
    const std::uint32_t net = bits >> 24;
    const bool is_usable = net != 0 && net != 127 && net < 224 && bits >> 16 != 0xa9fe;
    return is_usable ? AddressKind::V4 : AddressKind::Unusable;
  }
  if (inet_pton(AF_INET6, text.c_str(), &v6) != 1)
    return text.find(':') == text.npos ? AddressKind::NotNumeric : AddressKind::Unusable;
  const bool is_mapped = IN6_IS_ADDR_V4MAPPED(&v6) || IN6_IS_ADDR_V4COMPAT(&v6);
  const bool is_unusable = IN6_IS_ADDR_LOOPBACK(&v6) || IN6_IS_ADDR_UNSPECIFIED(&v6) ||
                           IN6_IS_ADDR_LINKLOCAL(&v6) || IN6_IS_ADDR_MULTICAST(&v6) || is_mapped;
  return is_unusable ? AddressKind::Unusable : AddressKind::V6;
}

bool is_usable_name(const std::string& text) {
  return is_host_text(text) && text != "localhost" && !text.starts_with("localhost.") &&
         text.find('%') == text.npos;
}

// Bridges to containers and virtual machines of this host, whose addresses are the same on every
// host.
bool is_bridge(std::string_view interface) {
  constexpr std::array<std::string_view, 9> kNames{"docker", "virbr", "br-",    "veth",   "cni",
                                                   "lxcbr",  "lxdbr", "podman", "flannel"};
  return std::any_of(kNames.begin(), kNames.end(),
                     [interface](std::string_view name) { return interface.starts_with(name); });
}

// Returns "10.0.0.1" for "10.0.0.7 50022 10.0.0.1 22".
std::string server_of(std::string_view ssh_connection) {
  const std::vector<std::string_view> words = split(ssh_connection, ' ');
  if (words.size() != 4) return {};
  return std::string(words[2].starts_with("::ffff:") ? words[2].substr(7) : words[2]);
}

std::string without_zone(const std::string& address) {
  return address.substr(0, address.find('%'));
}

}  // namespace

std::vector<std::string> addresses_to_report(const OwnAddresses& own) {
  std::vector<std::string> all{server_of(own.ssh_connection)};
  for (const bool takes_bridges : {false, true}) {
    for (const AddressKind kind : {AddressKind::V4, AddressKind::V6}) {
      for (const auto& [interface, address] : own.interfaces) {
        const std::string plain = without_zone(address);
        if (is_bridge(interface) == takes_bridges && kind_of(plain) == kind) all.push_back(plain);
      }
    }
  }
  std::vector<std::string> usable = usable_addresses(all);
  if (usable.size() == kMostAddresses) usable.pop_back();
  if (is_usable_name(own.host_name)) usable.push_back(own.host_name);
  return usable;
}

std::vector<std::string> usable_addresses(const std::vector<std::string>& reported) {
  std::vector<std::string> usable;
  for (const std::string& address : reported) {
    const AddressKind kind = kind_of(address);
    const bool is_fit =
        kind == AddressKind::NotNumeric ? is_usable_name(address) : kind != AddressKind::Unusable;
    const bool is_new = std::find(usable.begin(), usable.end(), address) == usable.end();
    if (is_fit && is_new && usable.size() < kMostAddresses) usable.push_back(address);
  }
  return usable;
}

void settle_places(JoinSpec& join, const Go& go, bool has_own_address) {
  if (go.places.empty()) return;
  const auto settle = [&](Endpoint& endpoint, const Place& place) {
    endpoint.port = static_cast<std::uint16_t>(place.port == 0 ? kMeetingPort : place.port);
    if (place.port == 0 || has_own_address) return;
    KnownAddresses known{.endpoint = endpoint,
                         .addresses = usable_addresses(place.addresses),
                         .has_loopback = go.is_one_machine};
    if (go.is_one_machine) known.addresses.insert(known.addresses.begin(), "127.0.0.1");
    join.book.push_back(std::move(known));
  };
  const Place& first = go.places.front();
  if (join.seats.empty()) {
    settle(join.endpoint, first);
    if (join.store_host == StoreHost::Agent) join.master_port = join.endpoint.port;
    if (join.store_host == StoreHost::Worker && first.master_port != 0)
      join.master_port = static_cast<std::uint16_t>(first.master_port);
  }
  for (std::size_t i = 0; i < join.seats.size() && i < go.places.size(); ++i)
    settle(join.seats[i], go.places[i]);
  if (!join.seats.empty()) join.endpoint = join.seats.front();
  join.reach_timeout = kReachTimeout;
}

}  // namespace drun::hosts
