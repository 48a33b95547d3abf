#include "launcher/plan_secret.h"

#include <algorithm>
#include <utility>

#include "rendezvous/member_addresses.h"

namespace drun {
namespace {

using rendezvous::kMostAddressesTold;
using rendezvous::kMostAddressesToldBytes;

std::vector<std::string> addresses_to_tell(const HostFacts& host) {
  std::vector<std::string> addresses;
  for (const std::string& each : host.addresses) {
    const std::string address = each.substr(0, each.find('%'));  // the zone is this host's own
    const bool is_new = std::find(addresses.begin(), addresses.end(), address) == addresses.end();
    if (is_new && addresses.size() < kMostAddressesTold &&
        address.size() <= kMostAddressesToldBytes)
      addresses.push_back(address);
  }
  return addresses;
}

}  // namespace

Result<void> plan_secret(JoinSpec& join, const Options& options, const HostFacts& host) {
  const std::optional<std::string> in_environment = variable(host, kSecretVariable);
  if (!options.secret_file && !in_environment) return {};
  Result<Secret> secret = options.secret_file ? host.secret_file(*options.secret_file)
                                              : Secret::make(*in_environment, kSecretVariable);
  if (!secret)
    return options.secret_file ? with_context(secret.error(), "--secret-file") : secret.error();
  join.secret = *std::move(secret);
  join.addresses = addresses_to_tell(host);
  return {};
}

}  // namespace drun
