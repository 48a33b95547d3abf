// core. From where a job with a secret lets its store be used: the addresses of its members, each
// as long as it is one.
//
// Shape:   addresses in one form (peer_address.h); two members may have the same (one host, one
//          translated network).
// Owner:   a value, beside the store it guards.   Thread: any, one at a time.   Errors: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace drun::rendezvous {

// What a member may tell of its own; the rest is not looked at.
inline constexpr std::size_t kMostAddressesToldBytes = 64;  // of each
inline constexpr std::size_t kMostAddressesTold = 64;

class MemberAddresses {
 public:
  // Once a member. Empty addresses are left out.
  void add(std::uint64_t member, std::vector<std::string> addresses);
  // Nobody, if it is not there.
  void remove(std::uint64_t member);

  bool has(const std::string& address) const { return counts_.contains(address); }

 private:
  std::unordered_map<std::uint64_t, std::vector<std::string>> of_member_;
  std::unordered_map<std::string, std::size_t> counts_;
};

}  // namespace drun::rendezvous
