// core. The part of the plan about worlds whose nodes come and go, and about restarts.
// Source:  torchrun's c10d rendezvous.
// Errors:  Usage, naming option, value, reason and remedy.   Thread: any.
#pragma once

#include "launcher/host.h"
#include "launcher/options.h"
#include "launcher/plan_join.h"
#include "rendezvous/join_spec.h"

namespace drun {

// Whether the coordinator gives this job's nodes their numbers: c10d of several nodes, unless they
// were given some and their number is fixed; etcd of several.
bool is_elastic(const Options& options);

// `join.endpoint` is known. Sets `elastic`, and whether this node listens: as is_host of
// --rdzv-conf says, else if the endpoint's host is this one; then whoever of several agents here
// comes first. Of several endpoints: which of them are this host's. With etcd: plan_etcd.h.
Result<void> plan_elastic(JoinSpec& join, const Options& options, const HostFacts& host);

void plan_restarts(JoinSpec& join, const Options& options);

// Options that only elastic worlds, or only others, have a use for.
void remark_elastic(const JoinSpec& join, const Options& options, Remarks& remarks);

}  // namespace drun
