// edge. `drun stacks`: queries one agent of each job on this machine, and prints the stacks that it
// collected from all nodes.
#pragma once

#include "launcher/cli/options.h"

namespace drun {

// Returns the exit code: 0, or 1 with a message on stderr if no such job runs here.
int show_stacks(const StacksCommand& command);

}  // namespace drun
