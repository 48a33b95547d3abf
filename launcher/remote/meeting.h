// core. Where the nodes of a job over ssh meet: what a host reports of itself before the start, and
// what the starter passes on to all nodes with "go".
//
//   agent -> starter   in Hello: Place, and which machine this is
//   starter -> agent   "go {...}": a Place for each endpoint, in their order
//
// Bounds:  at most kMostPlaces places of kMostAddresses addresses each. Everything is checked where
//          it arrives: an address that is none, or cannot be this host's for others, is left out.
// Owner:   values; copy freely.   Thread: any.   Errors: Refused.  Never throws.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/job/join_spec.h"

namespace drun::hosts {

inline constexpr std::size_t kMostAddresses = 16;  // as many as the connector tries
inline constexpr std::size_t kMostPlaces = 16;

struct Place {
  int port = 0;         // where the agent there listens; 0: nowhere
  int master_port = 0;  // free for rank 0's own store (--store=worker); 0: not asked for
  std::vector<std::string> addresses{};  // best first; numeric, the host's name last
  bool operator==(const Place&) const = default;
};

struct Go {
  std::vector<Place> places{};
  bool is_one_machine = false;  // all hosts are the same one: loopback addresses are theirs, too
  bool operator==(const Go&) const = default;
};

struct OwnAddresses {
  std::string ssh_connection{};  // sshd's variable: "client port server port"; may be empty
  std::vector<std::pair<std::string, std::string>> interfaces{};  // name and numeric address
  std::string host_name{};
};

// What others may reach this host at: first where sshd was reached, then the interfaces' global
// addresses, IPv4 first, those of bridges to containers and virtual machines after them, and its
// name. Never a loopback or a link-local one.
std::vector<std::string> addresses_to_report(const OwnAddresses& own);

// The same rules for what came from another machine: the order is kept.
std::vector<std::string> usable_addresses(const std::vector<std::string>& told);

// "go", with the places if there are any.
std::string to_line(const Go& go);
// Absent value of a line that is no go: Refused.
Result<Go> parse_go(std::string_view line);

// How long a node tries to connect to the others' endpoints once the job has begun.
inline constexpr std::chrono::seconds kReachTimeout{12};

// What a member does with the places; `has_own_address`: the user named it, and it stays.
void settle_places(JoinSpec& join, const Go& go, bool has_own_address);

}  // namespace drun::hosts
