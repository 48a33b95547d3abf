// edge. `drun stacks`: asks one agent of each job that runs on this machine, and shows what it has
// found out from all nodes.
//
// Errors:  exit code 1 when no such job runs here; said on stderr.   Thread: call it from main.
#pragma once

#include "launcher/cli/options.h"

namespace drun {

// Returns the exit code.
int show_stacks(const StacksCommand& command);

}  // namespace drun
