// core. The job's secret in the plan: from --secret-file, else from DRUN_SECRET.
// Errors:  Usage, naming the option or the variable, the reason and the remedy. A file or a
//          variable that is there but no good is never passed over: the job would be unprotected.
// Thread:  any.
#pragma once

#include "launcher/host.h"
#include "launcher/options.h"
#include "rendezvous/join_spec.h"

namespace drun {

inline constexpr const char kSecretVariable[] = "DRUN_SECRET";

Result<void> plan_secret(JoinSpec& join, const Options& options, const HostFacts& host);

}  // namespace drun
