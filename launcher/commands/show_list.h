// edge. `drun list`: one line per job that has an agent on this machine.
#pragma once

#include "launcher/cli/options.h"

namespace drun {

// Returns the exit code: 0, also without jobs; 1 if stdout cannot be written.
int show_list(const ListCommand& command);

}  // namespace drun
