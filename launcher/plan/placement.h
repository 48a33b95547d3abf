// core. The placement part of the plan: CPUs, memory, devices and threads of every worker, and the
// wrapper command of some.
// Errors:  Usage, naming option, value, reason and remedy; System if the machine cannot be read.
#pragma once

#include "agent/spec.h"
#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "launcher/plan/rendezvous.h"

namespace drun {

// Sets the worker's placements, device variable and wrapper command; leaves them empty if no option
// asks for them. Adds to `notes`.
Result<void> plan_placement(WorkerSpec& worker, const Options& options, const HostFacts& host,
                            const JoinSpec& join, PlanNotes& notes);

}  // namespace drun
