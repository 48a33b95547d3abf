// edge. One job from wishes to exit code: plan, agent under its guardian, outcome in words and in
// the report file.
#pragma once

#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "launcher/plan/plan.h"
#include "rendezvous/base/log.h"

namespace drun {

// Gives the exit code. Forks (agent/process/guardian.h): call it while there is one thread only,
// and return what it gives.
int run_job(const Options& options, const HostFacts& host);

// drun's own lines on stderr, as the plan wants them.
Log job_log(const Plan& plan, const std::string& invoked_as);

}  // namespace drun
