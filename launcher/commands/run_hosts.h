// edge. Runs a job on other machines: plan, sessions, report, exit code.
#pragma once

#include "launcher/cli/options.h"
#include "launcher/facts/host.h"

namespace drun::hosts {

// Requires options.hosts.names_hosts(). Returns the exit code. Forks (agent/process/guardian.h):
// call it before other threads exist, and return its result from main.
int run_hosts(const Options& options, const HostFacts& host);

}  // namespace drun::hosts
