// core. The placement part of the plan: CPUs, memory, devices and threads of every worker, and the
// command around some of them.
// Errors:  Usage, naming option, value, reason and remedy; System when the machine cannot be read.
// Thread:  any.
#pragma once

#include "agent/spec.h"
#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "launcher/plan/rendezvous.h"

namespace drun {

// Fills in the worker's placements, device variable and wrap; leaves them empty when nothing was
// asked for. Adds to `remarks`.
Result<void> plan_placement(WorkerSpec& worker, const Options& options, const HostFacts& host,
                            const JoinSpec& join, Remarks& remarks);

}  // namespace drun
