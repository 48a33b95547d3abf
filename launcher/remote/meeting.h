// core. The endpoints of a job over ssh: each host reports its addresses before the start, and the
// launcher sends the endpoints to all nodes with "go".
//
//   agent -> launcher  in Hello: Place, and the identity of the machine
//   launcher -> agent  Go: one Place per endpoint, in their order
//
// There are at most kMostPlaces places with kMostAddresses addresses each. The receiver checks
// everything: it drops invalid addresses and those that other hosts cannot use.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/job/join_spec.h"

namespace drun::hosts {

inline constexpr std::size_t kMostAddresses = 16;  // the connector tries this many
inline constexpr std::size_t kMostPlaces = 16;

struct Place {
  int port = 0;         // where the agent listens; 0: it does not
  int master_port = 0;  // free port for rank 0's store (--store=worker); 0: not needed
  std::vector<std::string> addresses{};  // best first; numeric, then the host name
  bool operator==(const Place&) const = default;
};

struct Go {
  std::vector<Place> places{};
  bool is_one_machine = false;  // all hosts are this machine; loopback addresses work
  bool operator==(const Go&) const = default;
};

struct OwnAddresses {
  std::string ssh_connection{};  // sshd's variable: "client port server port"; may be empty
  std::vector<std::pair<std::string, std::string>> interfaces{};  // name, numeric address
  std::string host_name{};
};

// The addresses at which other hosts may reach this one: first the one that sshd was reached at,
// then the interfaces' global addresses (IPv4 first; bridges to containers and virtual machines
// last), then the host name. Never a loopback or link-local address.
std::vector<std::string> addresses_to_report(const OwnAddresses& own);

// Applies the same rules to addresses from another machine. Keeps their order.
std::vector<std::string> usable_addresses(const std::vector<std::string>& reported);

// How long a node tries to connect to the endpoints after the start of the job.
inline constexpr std::chrono::seconds kReachTimeout{12};

// Sets a node's endpoints. `has_own_address`: the user gave the address, so keep it.
void settle_places(JoinSpec& join, const Go& go, bool has_own_address);

}  // namespace drun::hosts
