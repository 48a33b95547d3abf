// edge. Runs one job: options -> plan -> agent under its guardian -> report and exit code.
#pragma once

#include "agent/spec.h"
#include "agent/supervise/agent.h"
#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "launcher/plan/plan.h"
#include "rendezvous/base/log.h"

namespace drun {

// Returns the exit code of the process. Forks (agent/process/guardian.h): call it while the process
// has one thread, and exit with the result.
int run_job(const Options& options, const HostFacts& host);

// Whether the console has shown the stderr of the worker that failed first: it goes to the console,
// and the worker ran on this node or its node sends its lines to this one.
bool has_shown_stderr(const AgentSpec& spec, const agent::AgentEnd& end);

// drun's log on stderr, as configured by the plan. `host`: included in the lines of an elastic job;
// may be empty.
Log job_log(const Plan& plan, const std::string& invoked_as, const std::string& host);

}  // namespace drun
