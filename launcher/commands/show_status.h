// edge. `drun status`: finds the agents of this machine, queries each, and prints their status.
#pragma once

#include "launcher/cli/options.h"
#include "launcher/facts/host.h"

namespace drun {

// Returns the exit code: 0, or 1 if no such job runs here. With --watch, returns 0 after the last
// job ends.
int show_status(const StatusCommand& command, const HostFacts& host);

}  // namespace drun
