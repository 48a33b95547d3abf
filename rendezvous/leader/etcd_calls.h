// core. Requests to etcd and its answers, as values and as JSON, and the contents of a job's keys.
// etcd_election.h decides about them.
//
// Keys:    a job has two keys. `leader` names the coordinator and exists as long as that agent's
//          lease. `state` contains what the next coordinator needs, under a longer lease.
// Source:  etcd's api/etcdserverpb/rpc.proto, version 3.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "rendezvous/job/job_record.h"
#include "rendezvous/net/endpoint.h"

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

// --- Requests and answers as HTTP bodies of etcd's JSON gateway
//
// Limits:  the HTTP client limits an answer to kMostAnswerBytes.
// Errors:  Failed: the text is not an answer of etcd, or is etcd's error message.
// Source:  etcd.io/docs/v3.4/dev-guide/api_grpc_gateway: keys and values in base64, 64-bit numbers
//          as text. Versions 3.4 and later; 3.3 has another path.

constexpr std::size_t kMostAnswerBytes = std::size_t{1} << 20;

struct Request {
  std::string path;
  std::string body;
};

Request request_of(const Call& call, const Keys& keys);

Request watch_request(Revision from, const Keys& keys);
// Decodes one line of the answer. Failed: etcd has ended the watch, or the line is not a message of
// etcd.
std::variant<WatchMessage, Failed> watch_message(const Keys& keys, std::string_view line);

// `status`: the HTTP status code.
std::variant<Answer, Failed> answer_of(const Call& call, const Keys& keys, int status,
                                       std::string_view body);

// --- The contents of the two keys: the job's coordinator, and the state for the next one
//
// Format:  JSON, so that users can read it with etcdctl.
// Limits:  the last kMostKept excluded nodes, with shortened names and reasons.
// Errors:  nullopt for text that drun has not written.

constexpr std::size_t kMostKept = 128;

struct LeaderRecord {
  Endpoint endpoint{};
  std::uint64_t term = 0;
  std::uint64_t instance = 0;  // of the agent
  bool operator==(const LeaderRecord&) const = default;
};

struct StateRecord {
  std::uint64_t term = 0;  // of the leader that wrote it
  RoundRecord rounds{};
  bool operator==(const StateRecord&) const = default;
};

std::string text_of(const LeaderRecord& record);
std::string text_of(const StateRecord& record);
std::optional<LeaderRecord> leader_of(std::string_view text);
std::optional<StateRecord> state_of(std::string_view text);

}  // namespace drun::rendezvous::etcd
