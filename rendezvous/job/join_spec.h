// core. How a node takes part in a job. The launcher's plan fills it in, and rendezvous follows it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/job/restart_policy.h"
#include "rendezvous/job/stack_answers.h"
#include "rendezvous/job/world.h"
#include "rendezvous/net/endpoint.h"
#include "rendezvous/tls/secret.h"

namespace drun {

// PEM files; empty: none. Without `authorities`, the system's certificate authorities are trusted.
struct CertificateFiles {
  std::string certificate{};  // this side's
  std::string key{};          // the certificate's private key
  std::string authorities{};
  bool operator==(const CertificateFiles&) const = default;
};

// The etcd cluster that elects the job's coordinator, as given on the command line.
struct EtcdSpec {
  std::vector<Endpoint> endpoints{};  // of one cluster, tried in turn
  bool is_https = false;
  CertificateFiles files{};      // https only
  std::string prefix = "/drun";  // of the job's keys
  bool stands = true;            // this agent may coordinate
  bool operator==(const EtcdSpec&) const = default;
};

enum class StoreHost {
  Agent,   // the coordinator's agent serves the store on MASTER_PORT
  Worker,  // rank 0 binds MASTER_PORT; the agents use another endpoint
};

// The default memory limit of a store.
constexpr std::size_t kStoreMemoryBytes = std::size_t{1} << 30;

// The order in which the nodes of an elastic job are ranked.
enum class RankOrder {
  Endpoint,  // the coordinator's node first; then by host name if all have numbers, else by arrival
  Natural,   // by host name, node2 before node10
  Arrival,
};

// Settings of an elastic job, whose nodes may join and leave. The coordinator assigns the ranks.
struct ElasticSpec {
  int min_nodes = 1;  // JoinSpec::node_count is the maximum
  RankOrder rank_order = RankOrder::Endpoint;
  // How long to wait for more nodes once the minimum has joined, before the first world starts.
  std::chrono::milliseconds last_call_timeout{std::chrono::seconds(30)};
  // How long a new node must have been connected before the running world is stopped for it.
  // Doubled each time that node is lost.
  std::chrono::milliseconds min_uptime{std::chrono::seconds(5)};
  // A node whose workers were the first to fail in this many consecutive rounds is excluded; 0:
  // never.
  int exclude_after = 0;
  bool exclude_slow = false;  // a standby node replaces a slow one
  bool operator==(const ElasticSpec&) const = default;
};

struct JoinSpec {
  std::string run_id = "none";
  int node_rank = 0;   // fixed-size jobs only
  int node_count = 1;  // the maximum in an elastic job
  std::optional<ElasticSpec> elastic{};
  int slot = 0;  // distinguishes agents of one host; elastic jobs only
  int local_world_size = 1;
  std::string role = "default";
  std::vector<RoleShare> roles{};  // with several programs; replaces `role`
  Endpoint endpoint;  // where the coordinator listens; port 0: any free one (one node only)
  bool is_coordinator = true;  // this agent listens there
  // Sockets that already listen at this agent's endpoint; its server takes ownership of them.
  std::vector<ListeningFd> listening{};
  AddressBook book{};  // of `endpoint` and `seats`
  // Set if every node has been started and the coordinator's endpoints are listening: a node that
  // cannot connect to any of them within this time fails. 0: only join_timeout applies.
  std::chrono::milliseconds reach_timeout{0};
  // Elastic jobs with an elected coordinator (docs/internals/election.md): the endpoints that may
  // host it. `endpoint` starts as the first of them. Empty if there is one endpoint.
  std::vector<Endpoint> seats{};
  std::vector<std::size_t> own_seats{};  // of `seats`, those on this host
  std::optional<std::size_t> seat{};     // of `seats`, the one that this agent holds
  // Set if etcd elects the coordinator. `endpoint` is where this agent listens (port 0: any free
  // one) until it learns the coordinator's endpoint; `seats` contains only that endpoint.
  std::optional<EtcdSpec> etcd{};
  bool may_be_member = false;     // if another agent of this host already listens there, join it
  std::string master_addr;        // passed to workers exactly as given
  std::uint16_t master_port = 0;  // 0: the coordinator's port, once it is known
  StoreHost store_host = StoreHost::Agent;
  std::size_t store_memory_bytes = kStoreMemoryBytes;  // limit for its clients' data
  int max_restarts = 0;
  RestartPolicy restart{};
  bool preflight = false;  // run the probes before the first round of the program
  std::chrono::milliseconds join_timeout{std::chrono::minutes(15)};
  std::chrono::milliseconds heartbeat_timeout{std::chrono::seconds(10)};
  // How long the workers of a lost node may still run: its agent detects the loss within the
  // heartbeat timeout, then stops them within the shutdown timeout. Until then, their host may not
  // use the store.
  std::chrono::milliseconds kill_grace{std::chrono::seconds(40)};
  bool has_private_network = false;  // only nodes of this job are on it
  std::optional<Secret> secret{};    // the job's; encrypts and authenticates control traffic
  // Numeric addresses of this host. With a secret, its workers may use the store only from these.
  std::vector<std::string> addresses{};
  bool shows_progress = false;  // the agent shows join progress, so it is not logged
  bool gathers_lines = false;   // all nodes send their workers' output to the coordinator
  // How this agent, as the coordinator, reads the stacks of workers. Set by the agent.
  MakeStackAnswers make_stack_answers = nullptr;
  bool operator==(const JoinSpec&) const = default;
};

}  // namespace drun
