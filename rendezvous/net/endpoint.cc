#include "rendezvous/net/endpoint.h"

#include <arpa/inet.h>

#include <algorithm>

#include "rendezvous/base/text.h"

namespace drun {
namespace {

Error bad(std::string_view text, std::string_view reason) {
  return Error{ErrorCode::Usage, "endpoint \"" + std::string(text) + "\": " + std::string(reason) +
                                     "; write HOST, HOST:PORT or [IPv6]:PORT"};
}

bool is_host_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '-' || c == '_' || c == ':' || c == '%';
}

bool is_ipv6_address(std::string_view text) {
  in6_addr address;
  return inet_pton(AF_INET6, std::string(text).c_str(), &address) == 1;
}

}  // namespace

const KnownAddresses* find_addresses(const AddressBook& book, const Endpoint& endpoint) {
  const auto found = std::find_if(book.begin(), book.end(), [&endpoint](const auto& known) {
    return known.endpoint == endpoint && !known.addresses.empty();
  });
  return found == book.end() ? nullptr : &*found;
}

std::string addresses_text(const AddressBook& book, const Endpoint& endpoint) {
  const KnownAddresses* known = find_addresses(book, endpoint);
  if (known == nullptr) return to_string(endpoint);
  std::string text;
  for (const std::string& address : known->addresses)
    text += (text.empty() ? "" : ", ") + to_string(Endpoint{address, endpoint.port});
  return text;
}

bool is_host_text(std::string_view text) {
  constexpr std::size_t kLongestName = 255;
  return !text.empty() && text.size() <= kLongestName && !text.starts_with('-') &&
         std::all_of(text.begin(), text.end(), is_host_character);
}

std::string bracketed_host(const std::string& host) {
  return host.find(':') == host.npos ? host : "[" + host + "]";
}

std::string to_string(const Endpoint& endpoint) {
  return bracketed_host(endpoint.host) + ":" + std::to_string(endpoint.port);
}

std::string to_string(const std::vector<Endpoint>& endpoints) {
  std::string text;
  for (const Endpoint& endpoint : endpoints)
    text += (text.empty() ? "" : ",") + to_string(endpoint);
  return text;
}

Result<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port) {
  std::string_view host = text;
  std::string_view port;
  bool has_port = false;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == text.npos) return bad(text, "no closing bracket");
    host = text.substr(1, end - 1);
    const std::string_view rest = text.substr(end + 1);
    if (!rest.empty() && !rest.starts_with(':'))
      return bad(text, "something other than :PORT after the bracket");
    has_port = !rest.empty();
    if (has_port) port = rest.substr(1);
  } else if (const std::size_t colon = text.rfind(':');
             colon != text.npos && !is_ipv6_address(text)) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    has_port = true;
  }
  if (host.empty()) return bad(text, "the host is empty");
  if (!std::all_of(host.begin(), host.end(), is_host_character))
    return bad(text, "not a host name or address");
  if (!has_port) return Endpoint{.host = std::string(host), .port = default_port};
  const auto number = whole_number<std::uint16_t>(port);
  if (!number) return bad(text, "\"" + std::string(port) + "\" is not a port (0 to 65535)");
  return Endpoint{.host = std::string(host), .port = *number};
}

// FNV-1a: unlike std::hash, the same in every build.
std::uint16_t derived_port(std::string_view job) {
  std::uint32_t hash = 2166136261U;
  for (const char each : job) hash = (hash ^ static_cast<unsigned char>(each)) * 16777619U;
  return static_cast<std::uint16_t>(kFirstDerivedPort + hash % kDerivedPorts);
}

}  // namespace drun
