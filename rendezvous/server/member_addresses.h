// core. The addresses of a job's members, and of members that were lost a short time ago. They
// decide which hosts may use the store: with a secret only members' hosts; without one, all hosts
// except those whose members were lost and whose workers may still be running.
//
// Format:  as plain_address() returns them (peer_address.h). Members may share an address (one
//          host, or one translated network).
// Limits:  kMostLost lost addresses; beyond that, the oldest is dropped.
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

class MemberAddresses {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::size_t kMostLost = 4096;

  // Call it once for each member. Ignores empty addresses.
  void add(std::uint64_t member, std::vector<std::string> addresses);
  // No-op if unknown.
  void remove(std::uint64_t member);
  // As remove(), and is_barred() is true for its addresses until `barred_until`, which must not
  // decrease from call to call.
  void lose(std::uint64_t member, Time barred_until);

  // Whether a member has the address.
  bool has(const std::string& address) const { return counts_.contains(address); }
  // Whether workers of a lost member may still run there, and no member has the address.
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
