// edge. `drun stop`: sends SIGTERM to the drun processes of jobs on this machine, and waits until
// they are gone.
#pragma once

#include "launcher/cli/options.h"

namespace drun {

// Returns the exit code: 0, or 1 with a message on stderr if a job is unknown or still runs.
int stop_jobs(const StopCommand& command);

}  // namespace drun
