// core. The job's deadline, from --time-limit or Slurm.
#pragma once

#include <chrono>
#include <optional>

#include "agent/spec.h"
#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "rendezvous/base/result.h"

namespace drun {

// Nothing if none of --time-limit, --signal-before and --requeue is given. Errors: Usage, if there
// is no deadline, no job to requeue, or no time between the signal and the stop.
Result<std::optional<DeadlineSpec>> plan_deadline(const Options& options, const HostFacts& host,
                                                  std::chrono::milliseconds shutdown_timeout);

}  // namespace drun
