#include "launcher/plan/rendezvous.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/net/endpoint.h"

namespace drun {
namespace {

// Clusters usually have 3, 5 or 7 members.
constexpr std::size_t kMostEndpoints = 16;
constexpr std::size_t kMostPrefixBytes = 200;

Result<std::vector<Endpoint>> endpoints_of(const Options& options) {
  const std::string given = "--rdzv-endpoint=" + options.rdzv_endpoint.value_or("");
  if (given.find("://") != given.npos)
    return usage_error(given,
                       "write HOST:PORT[,HOST:PORT...]; for https use --rdzv-conf protocol=https");
  std::vector<Endpoint> endpoints;
  for (const std::string& item : listed_endpoints(options)) {
    Result<Endpoint> endpoint = parse_endpoint(item, kEtcdPort);
    if (!endpoint) return with_context(endpoint.error(), "--rdzv-endpoint");
    if (endpoint->port == 0)
      return usage_error(given, "etcd cannot listen on port 0; its default port is 2379");
    endpoints.push_back(*std::move(endpoint));
  }
  if (endpoints.size() > kMostEndpoints)
    return usage_error(given, "at most 16 endpoints of etcd are allowed");
  return endpoints;
}

Result<void> plan_certificates(EtcdSpec& etcd, const Options& options, const HostFacts& host) {
  const std::string protocol = rdzv_conf(options, "protocol").value_or("http");
  if (protocol != "http" && protocol != "https")
    return usage_error("--rdzv-conf protocol=" + protocol, "expected http or https");
  etcd.is_https = protocol == "https";
  const std::pair<const char*, std::string*> files[] = {{"cert", &etcd.files.certificate},
                                                        {"key", &etcd.files.key},
                                                        {"cacert", &etcd.files.authorities}};
  for (const auto& [name, file] : files) {
    *file = rdzv_conf(options, name).value_or("");
    if (file->empty()) continue;
    const std::string given = "--rdzv-conf " + std::string(name) + "=" + *file;
    if (!etcd.is_https) return usage_error(given, "it requires https; add protocol=https");
    const FileKind kind = host.probe ? host.probe(*file) : FileKind::NotExecutable;
    if (kind == FileKind::Missing || kind == FileKind::Directory)
      return usage_error(given, "no such file on this machine; give the path of a PEM file");
  }
  if (etcd.files.certificate.empty() == etcd.files.key.empty()) return {};
  return usage_error("--rdzv-conf", "cert and key must be set together");
}

// Passwords would be visible in process lists.
Result<void> refuse_passwords(const Options& options) {
  for (const char* key : {"user", "username", "password"}) {
    if (rdzv_conf(options, key))
      return usage_error("--rdzv-conf " + std::string(key),
                         "drun does not support passwords for etcd; use cert and key with "
                         "protocol=https, or allow access without a password");
  }
  return {};
}

Result<std::string> prefix_of(const Options& options) {
  std::string prefix = rdzv_conf(options, "etcd_prefix").value_or(EtcdSpec().prefix);
  while (prefix.size() > 1 && prefix.ends_with('/')) prefix.pop_back();
  const bool is_fit = !prefix.empty() && prefix.size() <= kMostPrefixBytes &&
                      std::all_of(prefix.begin(), prefix.end(), [](char c) { return c > ' '; });
  if (is_fit) return prefix;
  return usage_error("--rdzv-conf etcd_prefix=" + prefix,
                     "it is the prefix of the job's keys, such as /drun; at most 200 characters "
                     "without spaces are allowed");
}

// A loopback or link-local address is not reachable from other hosts.
bool is_for_others(const std::string& address) {
  return !is_loopback(address) && !address.starts_with("fe80:");
}

// Used if there is no route to etcd (for example, the network is not up yet). A name that cannot be
// resolved here is not used.
std::string own_name_or_address(const HostFacts& host) {
  if (!host.addresses_of || !host.addresses_of(host.hostname).empty()) return host.hostname;
  const auto own = std::find_if(host.addresses.begin(), host.addresses.end(), is_for_others);
  return own == host.addresses.end() ? host.hostname : *own;
}

// The address of this agent for other agents: the local address of its route to etcd.
std::string own_host(const Options& options, const std::vector<Endpoint>& endpoints,
                     const HostFacts& host) {
  if (options.local_addr && !options.local_addr->empty()) return *options.local_addr;
  if (is_loopback(endpoints.front().host)) return "127.0.0.1";
  for (const Endpoint& endpoint : endpoints) {
    if (!host.addresses_of || !host.source_address) break;
    for (const std::string& address : host.addresses_of(endpoint.host)) {
      const std::optional<std::string> own = host.source_address(address);
      if (own && is_for_others(*own)) return *own;
    }
  }
  return own_name_or_address(host);
}

}  // namespace

bool is_etcd(const Options& options) {
  const std::string name = options.rdzv_backend.value_or("");
  return !options.standalone && (name == "etcd" || name == "etcd-v2" || name == "etcd-v3");
}

bool is_etcd_key(std::string_view key) {
  return key == "protocol" || key == "cert" || key == "key" || key == "cacert" ||
         key == "etcd_prefix";
}

Result<void> plan_etcd(JoinSpec& join, const Options& options, const HostFacts& host,
                       std::optional<bool> is_host) {
  if (options.store == StoreHost::Worker)
    return usage_error("--store=worker",
                       "with etcd, the coordinator's agent serves the store; remove the option");
  if (options.gather_logs)
    return usage_error("--gather-logs",
                       "with etcd, another node may become the coordinator, and lines cannot "
                       "follow it; remove the option");
  if (Result<void> none = refuse_passwords(options); !none) return none;
  Result<std::vector<Endpoint>> endpoints = endpoints_of(options);
  if (!endpoints) return endpoints.error();
  Result<std::string> prefix = prefix_of(options);
  if (!prefix) return prefix.error();
  EtcdSpec etcd;
  etcd.stands = is_host.value_or(true);
  etcd.prefix = *std::move(prefix);
  if (Result<void> planned = plan_certificates(etcd, options, host); !planned) return planned;
  join.endpoint = {.host = own_host(options, *endpoints, host),
                   .port = static_cast<std::uint16_t>(options.master_port.value_or(0))};
  etcd.endpoints = *std::move(endpoints);
  join.etcd = std::move(etcd);
  join.is_coordinator = true;
  join.may_be_member = false;
  join.master_addr.clear();
  join.master_port = 0;
  return {};
}

}  // namespace drun
