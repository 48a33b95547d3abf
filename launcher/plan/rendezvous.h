// core. The rendezvous part of the plan: the identity of this node, the endpoint, and the workers'
// MASTER_ADDR and MASTER_PORT. Follows torchrun's static rendezvous, --standalone, c10d and etcd.
// Errors:  Usage, naming option, value, reason and remedy; never a password.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "rendezvous/job/join_spec.h"

namespace drun {

inline constexpr int kMasterPort = 29500;
inline constexpr int kMeetingPort = 29400;

struct PlanNotes {
  std::vector<std::string> notes{};
  std::vector<std::string> warnings{};
};

// Present and not empty.
inline bool is_given(const std::optional<std::string>& text) { return text && !text->empty(); }

// A value of --rdzv-conf; the last one if the key is repeated.
std::optional<std::string> rdzv_conf(const Options& options, std::string_view key);

// Adds to `notes` even on failure.
Result<JoinSpec> plan_join(const Options& options, const HostFacts& host, PlanNotes& notes);

// The number of workers on this machine by --nproc-per-node.
Result<int> plan_workers(const Options& options, const HostFacts& host);

// --- Several endpoints, where the agents elect a coordinator (docs/internals/election.md)

// The endpoints of --rdzv-endpoint=A,B,C; a single one if there is no comma.
std::vector<std::string> listed_endpoints(const Options& options);

// --- The job's secret: from --secret-file, or else from DRUN_SECRET
//
// An invalid file or variable is always an error, because ignoring it would leave the job
// unprotected.

inline constexpr const char kSecretVariable[] = "DRUN_SECRET";

Result<void> plan_secret(JoinSpec& join, const Options& options, const HostFacts& host);

// Whether the coordinator assigns the node ranks: with c10d and several nodes, unless node ranks
// are given and the number of nodes is fixed; with etcd and several nodes.
bool is_elastic(const Options& options);

// --- Election of the coordinator through etcd (etcd.cc; docs/internals/election.md)
//
// Names, default port and --rdzv-conf keys are those of torchrun's etcd rendezvous.

inline constexpr int kEtcdPort = 2379;

// etcd, etcd-v2 and etcd-v3 mean the same here.
bool is_etcd(const Options& options);

// Keys of --rdzv-conf that only apply to etcd.
bool is_etcd_key(std::string_view key);

// For an elastic world. `is_host`: the value from --rdzv-conf.
Result<void> plan_etcd(JoinSpec& join, const Options& options, const HostFacts& host,
                       std::optional<bool> is_host);

}  // namespace drun
