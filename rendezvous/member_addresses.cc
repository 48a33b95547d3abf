#include "rendezvous/member_addresses.h"

#include <algorithm>
#include <utility>

namespace drun::rendezvous {

void MemberAddresses::add(std::uint64_t member, std::vector<std::string> addresses) {
  remove(member);
  std::erase(addresses, std::string());
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  for (const std::string& address : addresses) ++counts_[address];
  of_member_.emplace(member, std::move(addresses));
}

void MemberAddresses::remove(std::uint64_t member) {
  const auto found = of_member_.find(member);
  if (found == of_member_.end()) return;
  for (const std::string& address : found->second) {
    const auto count = counts_.find(address);
    if (--count->second == 0) counts_.erase(count);
  }
  of_member_.erase(found);
}

}  // namespace drun::rendezvous
