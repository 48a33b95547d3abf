// core. What an agent asks of etcd, and what etcd answers, as values; etcd_json.h has the bytes,
// etcd_election.h says what is asked when.
//
// Shape:   a job has two keys. `leader` says who coordinates, and is there as long as that agent's
//          lease. `state` is what the next coordinator has to know, under a lease that is longer.
// Owner:   values; copy freely.   Thread: any.
// Source:  etcd's api/etcdserverpb/rpc.proto, version 3.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

namespace drun::rendezvous::etcd {

using Lease = std::int64_t;     // never 0
using Revision = std::int64_t;  // counts what etcd has changed; 0: before all of it

struct Keys {
  std::string leader;
  std::string state;
};

// Both keys as they are at one moment.
struct Look {};
struct Grant {
  std::chrono::seconds ttl{0};
};
struct Renew {
  Lease lease = 0;
};
// Both keys at once; only if there is no leader, and the state is that of `state_changed` (0:
// none).
struct Claim {
  std::string leader{};
  Lease leader_lease = 0;
  std::string state{};
  Lease state_lease = 0;
  Revision state_changed = 0;
};
// Only if the leader's key is still the one that was `led_since`, and the state as above.
struct Store {
  Revision led_since = 0;
  std::string state{};
  Lease state_lease = 0;
  Revision state_changed = 0;
};
// Takes both keys away, likewise: the job is over.
struct Clear {
  Revision led_since = 0;
};
// And every key that is under it.
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
  Revision revision = 0;          // of the change; without one, of etcd
  bool is_change = false;         // false: the watch is there, or etcd shows that it is
  std::optional<Found> leader{};  // with a change; absent: the key was deleted
  bool operator==(const WatchMessage&) const = default;
};

// To Grant and Renew. Without time: there is no such lease (any more).
struct Leased {
  Lease lease = 0;
  std::chrono::seconds ttl{0};
  bool operator==(const Leased&) const = default;
};
// To Look, Claim, Store and Clear: whether it was done, and how the keys are then.
struct Seen {
  bool is_done = false;
  Sight sight{};
  bool operator==(const Seen&) const = default;
};
struct Revoked {
  bool operator==(const Revoked&) const = default;
};
using Answer = std::variant<Leased, Seen, Revoked>;

// Unknown whether it was carried out, unless etcd refused it.
struct Failed {
  std::string reason{};     // "10.0.0.1:2379: connection refused"
  bool is_refused = false;  // etcd refused: there is no such lease
  bool operator==(const Failed&) const = default;
};

}  // namespace drun::rendezvous::etcd
