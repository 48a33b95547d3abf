// edge. One job from wishes to exit code: plan, agent under its guardian, outcome in words and in
// the report file.
#pragma once

#include "launcher/host.h"
#include "launcher/options.h"

namespace drun {

// Gives the exit code. Forks (agent/guardian.h): call it while there is one thread only, and return
// what it gives.
int run_job(const Options& options, const HostFacts& host);

}  // namespace drun
