// edge. `drun logs`: prints lines from the log files of a job's ranks, and follows them.
#pragma once

#include "launcher/cli/options.h"

namespace drun {

// Returns the exit code: 0, also when the reader of stdout ends; 1 with a message on stderr if
// there is no such job, rank or file.
int show_logs(const LogsCommand& command);

}  // namespace drun
