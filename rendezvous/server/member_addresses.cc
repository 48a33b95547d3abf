#include "rendezvous/server/member_addresses.h"

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

void MemberAddresses::lose(std::uint64_t member, Time barred_until) {
  const auto found = of_member_.find(member);
  if (found == of_member_.end()) return;
  for (const std::string& address : found->second) {
    if (const auto earlier = lost_.find(address); earlier != lost_.end())
      lost_in_order_.erase(earlier->second.number);
    const std::uint64_t number = ++last_number_;
    lost_[address] = {barred_until, number};
    lost_in_order_.emplace(number, address);
    if (lost_.size() <= kMostLost) continue;
    lost_.erase(lost_in_order_.begin()->second);
    lost_in_order_.erase(lost_in_order_.begin());
  }
  remove(member);
}

bool MemberAddresses::is_barred(const std::string& address, Time now) const {
  const auto found = lost_.find(address);
  return found != lost_.end() && now < found->second.until && !has(address);
}

}  // namespace drun::rendezvous
