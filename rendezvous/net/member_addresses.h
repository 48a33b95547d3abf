// core. The addresses of a job's members, and of members that were lost a short time ago. They
// decide which hosts may use the store: with a secret only members' hosts; without one, all but the
// hosts whose members were lost and whose workers may still be running.
//
// Shape:   addresses in one form (peer_address.h); two members may have the same (one host, one
//          translated network).
// Limits:  kMostLost lost addresses; beyond it the oldest is forgotten.
// Owner:   a value, beside the store it guards.   Thread: any, one at a time.   Errors: none.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace drun::rendezvous {

// Limits of what a member may report; the rest is ignored.
inline constexpr std::size_t kMostAddressesToldBytes = 64;  // of each
inline constexpr std::size_t kMostAddressesTold = 64;

class MemberAddresses {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::size_t kMostLost = 4096;

  // Once a member. Empty addresses are left out.
  void add(std::uint64_t member, std::vector<std::string> addresses);
  // No-op if unknown.
  void remove(std::uint64_t member);
  // As remove(). Until `barred_until`, is_barred() is true for its addresses. That must not
  // decrease from call to call.
  void lose(std::uint64_t member, Time barred_until);

  // Whether a member has the address.
  bool has(const std::string& address) const { return counts_.contains(address); }
  // Whether workers of a lost member may still run there, and no member does.
  bool is_barred(const std::string& address, Time now) const;

 private:
  struct Lost {
    Time until;
    std::uint64_t number = 0;
  };

  std::unordered_map<std::uint64_t, std::vector<std::string>> of_member_;
  std::unordered_map<std::string, std::size_t> counts_;
  std::unordered_map<std::string, Lost> lost_;
  std::map<std::uint64_t, std::string> lost_in_order_;  // keys of lost_, the oldest first
  std::uint64_t last_number_ = 0;
};

}  // namespace drun::rendezvous
