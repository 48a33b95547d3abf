// edge. `drun status`: finds the agents of this machine, asks each and prints what they say.
#pragma once

#include "launcher/cli/options.h"
#include "launcher/facts/host.h"

namespace drun {

// Gives the exit code: 0; 1 when no such job runs here; with --watch 0 once none is left.
int show_status(const StatusCommand& command, const HostFacts& host);

}  // namespace drun
