// edge. A job on other machines, from wishes to exit code: plan, sessions, report.
#pragma once

#include "launcher/cli/options.h"
#include "launcher/facts/host.h"

namespace drun::hosts {

// Requires options.hosts.names_hosts(). Gives the exit code. Forks (agent/process/guardian.h): call
// it while there is one thread only, and return what it gives.
int run_hosts(const Options& options, const HostFacts& host);

}  // namespace drun::hosts
