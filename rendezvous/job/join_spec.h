// core. How a node takes part in a job: what the launcher's plan says and rendezvous obeys.
//
// Owner:   a value; copy freely.   Thread: any.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/job/restart_policy.h"
#include "rendezvous/job/world.h"
#include "rendezvous/net/endpoint.h"
#include "rendezvous/net/secret.h"

// core. The etcd that elects a job's coordinator, as the command line names it.
// Owner:   values; copy freely.   Thread: any.

namespace drun {

// PEM files; empty: none. Without `authorities` the system's are believed.
struct CertificateFiles {
  std::string certificate{};  // this side's
  std::string key{};          // that one's
  std::string authorities{};
  bool operator==(const CertificateFiles&) const = default;
};

struct EtcdSpec {
  std::vector<Endpoint> endpoints{};  // of one etcd: tried in turn
  bool is_https = false;
  CertificateFiles files{};      // https only
  std::string prefix = "/drun";  // of the job's keys
  bool stands = true;            // this agent may coordinate
  bool operator==(const EtcdSpec&) const = default;
};

}  // namespace drun

namespace drun {

enum class StoreHost {
  Agent,   // the coordinator's agent serves the store on MASTER_PORT
  Worker,  // MASTER_PORT is left to rank 0; drun meets on an endpoint of its own
};

// What a store may keep, unless it is told otherwise.
constexpr std::size_t kStoreMemoryBytes = std::size_t{1} << 30;

// How nodes without a number of their own get one.
enum class RankOrder {
  Endpoint,  // the coordinator's node first; then by host name if all have numbers, else by arrival
  Natural,   // by host name, node2 before node10
  Arrival,
};

// Worlds whose nodes come and go, numbered by the coordinator.
struct ElasticSpec {
  int min_nodes = 1;  // JoinSpec::node_count is the most
  RankOrder rank_order = RankOrder::Endpoint;
  // From MIN nodes to the first world, for more to come.
  std::chrono::milliseconds last_call_timeout{std::chrono::seconds(30)};
  // A newcomer must have been there so long before a running world is stopped for it; doubled each
  // time that node is lost.
  std::chrono::milliseconds min_uptime{std::chrono::seconds(5)};
  // A node whose workers were the first to fail in so many rounds in a row is left out; 0: never.
  int exclude_after = 0;
  bool operator==(const ElasticSpec&) const = default;
};

struct JoinSpec {
  std::string run_id = "none";
  int node_rank = 0;   // not of elastic worlds
  int node_count = 1;  // of elastic worlds: the most
  std::optional<ElasticSpec> elastic{};
  int slot = 0;  // tells agents of one host apart; elastic worlds only
  int local_world_size = 1;
  std::string role = "default";
  std::vector<RoleShare> roles{};  // several programs: instead of `role`
  Endpoint endpoint;  // where the coordinator listens; port 0: any free one (one node only)
  bool is_coordinator = true;  // this agent listens there
  // Sockets that listen at this agent's endpoint already; its server takes them over.
  std::vector<ListeningFd> listening{};
  AddressBook book{};  // of `endpoint` and `seats`
  // Every node has been started, and those that coordinate listen: one that cannot connect to any
  // of them by then gives up. 0: join_timeout alone counts.
  std::chrono::milliseconds reach_timeout{0};
  // Elastic jobs with an elected coordinator (docs/internals/election.md): the endpoints that may
  // host it. `endpoint` starts as the first of them. Empty if there is one endpoint.
  std::vector<Endpoint> seats{};
  std::vector<std::size_t> own_seats{};  // of `seats`, those on this host
  std::optional<std::size_t> seat{};     // of `seats`, the one that this agent holds
  // etcd elects the coordinator instead: `endpoint` is where this agent listens (port 0: any free
  // one), until it is told who coordinates; `seats` holds that alone.
  std::optional<EtcdSpec> etcd{};
  bool may_be_member = false;     // if another agent of this host listens there already: join it
  std::string master_addr;        // what workers are told, exactly as it was given
  std::uint16_t master_port = 0;  // 0: the coordinator's port, once it is known
  StoreHost store_host = StoreHost::Agent;
  std::size_t store_memory_bytes = kStoreMemoryBytes;  // that its clients may fill
  int max_restarts = 0;
  RestartPolicy restart{};
  bool preflight = false;  // a world of probes before the first of the program
  std::chrono::milliseconds join_timeout{std::chrono::minutes(15)};
  std::chrono::milliseconds heartbeat_timeout{std::chrono::seconds(10)};
  // How long the workers of a lost node may go on running: its agent notices the loss within the
  // heartbeat timeout, then stops them within the shutdown timeout. For that long their host may
  // not use the store.
  std::chrono::milliseconds kill_grace{std::chrono::seconds(40)};
  bool has_private_network = false;  // which only the nodes of this job are on
  std::optional<Secret> secret{};    // the job's: control traffic is encrypted, strangers kept out
  // This host's, numeric: with a secret, workers reach the store from these.
  std::vector<std::string> addresses{};
  bool shows_progress = false;  // the agent does: who has joined need not be logged
  bool gathers_lines = false;   // workers' lines of all nodes go to the coordinator
  bool operator==(const JoinSpec&) const = default;
};

}  // namespace drun

namespace drun::rendezvous {

// How long a vote lasts (rendezvous/leader/election.h): a third of the heartbeat timeout, 200 ms to
// 5 s.
std::chrono::milliseconds election_lease(const JoinSpec& spec);

// How long etcd keeps a leader's key (rendezvous/leader/etcd_election.h): half of the heartbeat
// timeout, 2 to 30 s.
std::chrono::seconds etcd_lease(const JoinSpec& spec);

// How long it keeps the job's state without a leader: as long as agents look for one, a minute to a
// day.
std::chrono::seconds etcd_keep(const JoinSpec& spec);

}  // namespace drun::rendezvous
