// core. The rendezvous part of the plan: who this node is, where the nodes meet, what workers are
// told as MASTER_ADDR and MASTER_PORT.
// Source:  torchrun's static rendezvous and --standalone; c10d: rendezvous.h.
// Errors:  Usage, naming option, value, reason and remedy.   Thread: any.
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

struct Remarks {
  std::vector<std::string> notes{};
  std::vector<std::string> warnings{};
};

// Neither left out nor empty.
inline bool is_given(const std::optional<std::string>& text) { return text && !text->empty(); }

// Of --rdzv-conf; the last one, if it is there twice.
std::optional<std::string> rdzv_conf(const Options& options, std::string_view key);

// Adds to `remarks` also when it fails.
Result<JoinSpec> plan_join(const Options& options, const HostFacts& host, Remarks& remarks);

// What --nproc-per-node means on this machine.
Result<int> plan_workers(const Options& options, const HostFacts& host);

}  // namespace drun

// core. The part of the plan about several endpoints, where one agent is elected to coordinate
// (docs/internals/election.md).
// Errors:  Usage, naming option, value, reason and remedy.   Thread: any.

namespace drun {

// Of --rdzv-endpoint=A,B,C; one, if there is no comma.
std::vector<std::string> listed_endpoints(const Options& options);

// `join.endpoint` is the first of them. With three or more: sets `seats`, and leaves to the
// election what only it knows, the master's address.
Result<void> plan_seats(JoinSpec& join, const Options& options);

void remark_seats(const JoinSpec& join, const Options& options, Remarks& remarks);

}  // namespace drun

// core. The job's secret in the plan: from --secret-file, else from DRUN_SECRET.
// Errors:  Usage, naming the option or the variable, the reason and the remedy. A file or a
//          variable that is there but no good is never passed over: the job would be unprotected.
// Thread:  any.

namespace drun {

inline constexpr const char kSecretVariable[] = "DRUN_SECRET";

Result<void> plan_secret(JoinSpec& join, const Options& options, const HostFacts& host);

}  // namespace drun

// core. The part of the plan about worlds whose nodes come and go, and about restarts.
// Source:  torchrun's c10d rendezvous.
// Errors:  Usage, naming option, value, reason and remedy.   Thread: any.

namespace drun {

// Whether the coordinator gives this job's nodes their numbers: c10d of several nodes, unless they
// were given some and their number is fixed; etcd of several.
bool is_elastic(const Options& options);

// `join.endpoint` is known. Sets `elastic`, and whether this node listens: as is_host of
// --rdzv-conf says, else if the endpoint's host is this one; then whoever of several agents here
// comes first. Of several endpoints: which of them are this host's. With etcd: etcd.h.
Result<void> plan_elastic(JoinSpec& join, const Options& options, const HostFacts& host);

void plan_restarts(JoinSpec& join, const Options& options);

// Options that only elastic worlds, or only others, have a use for.
void remark_elastic(const JoinSpec& join, const Options& options, Remarks& remarks);

}  // namespace drun
