// edge. The launcher of --hosts: sessions, consoles, signals and a timer around the state machine
// (launch_machine.h).
#pragma once

#include "launcher/hosts/host_plan.h"
#include "launcher/remote/launch_machine.h"
#include "rendezvous/base/log.h"

namespace drun::hosts {

// Runs the job of `plan` from the first login to the end of the last session, with its own
// io_context. All output of the hosts has been written to fd 1 and 2 when it returns.
// `own_facts`: of this machine; its environment is also that of each ssh. Never throws.
LaunchEnd run_launcher(const HostPlan& plan, const HostFacts& own_facts, const Log& log);

}  // namespace drun::hosts
