// core. Requests to etcd and its answers, as values. etcd_json.h encodes them, and etcd_election.h
// decides about them.
//
// Keys:    a job has two keys. `leader` names the coordinator and exists as long as that agent's
//          lease. `state` contains what the next coordinator needs, under a longer lease.
// Source:  etcd's api/etcdserverpb/rpc.proto, version 3.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

namespace drun::rendezvous::etcd {

using Lease = std::int64_t;     // never 0
using Revision = std::int64_t;  // number of etcd's changes; 0: before the first

struct Keys {
  std::string leader;
  std::string state;
};

// Reads both keys at one moment.
struct Look {};
struct Grant {
  std::chrono::seconds ttl{0};
};
struct Renew {
  Lease lease = 0;
};
// Writes both keys, but only if there is no leader and the state is that of `state_changed` (0: no
// state).
struct Claim {
  std::string leader{};
  Lease leader_lease = 0;
  std::string state{};
  Lease state_lease = 0;
  Revision state_changed = 0;
};
// Writes the state, but only if the leader's key is still that of `led_since`, and the state is
// that of `state_changed`.
struct Store {
  Revision led_since = 0;
  std::string state{};
  Lease state_lease = 0;
  Revision state_changed = 0;
};
// Deletes both keys at the end of the job, under the same condition for the leader's key.
struct Clear {
  Revision led_since = 0;
};
// Also deletes every key under the lease.
struct Revoke {
  Lease lease = 0;
};
using Call = std::variant<Look, Grant, Renew, Claim, Store, Clear, Revoke>;

struct Found {
  std::string value{};
  Revision created = 0;
  Revision changed = 0;
  Lease lease = 0;
  bool operator==(const Found&) const = default;
};
struct Sight {
  Revision revision = 0;
  std::optional<Found> leader{};
  std::optional<Found> state{};
  bool operator==(const Sight&) const = default;
};

// One message of a watch of the leader's key, sent by etcd.
struct WatchMessage {
  Revision revision = 0;          // of the change; without one, etcd's current one
  bool is_change = false;         // false: the watch was created, or is still alive
  std::optional<Found> leader{};  // with a change; absent: the key was deleted
  bool operator==(const WatchMessage&) const = default;
};

// The answer to Grant and Renew. A ttl of 0: there is no such lease (anymore).
struct Leased {
  Lease lease = 0;
  std::chrono::seconds ttl{0};
  bool operator==(const Leased&) const = default;
};
// The answer to Look, Claim, Store and Clear: whether it was done, and the keys after it.
struct Seen {
  bool is_done = false;
  Sight sight{};
  bool operator==(const Seen&) const = default;
};
struct Revoked {
  bool operator==(const Revoked&) const = default;
};
using Answer = std::variant<Leased, Seen, Revoked>;

// The request may have been carried out, unless etcd refused it.
struct Failed {
  std::string reason{};     // "10.0.0.1:2379: connection refused"
  bool is_refused = false;  // etcd refused: there is no such lease
  bool operator==(const Failed&) const = default;
};

}  // namespace drun::rendezvous::etcd
