// edge. `drun store`: the store server alone on a port, until a signal ends it.
#pragma once

#include "launcher/cli/options.h"

namespace drun {

// Gives the exit code: 0 after SIGTERM or SIGINT, 125 when it cannot listen.
int serve_store(const StoreCommand& command);

}  // namespace drun
