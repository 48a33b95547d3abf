// edge. `drun store`: runs the store server on a port until a signal ends it.
#pragma once

#include "launcher/cli/options.h"

namespace drun {

// Returns the exit code: 0 after SIGTERM or SIGINT, 125 if it cannot listen.
int serve_store(const StoreCommand& command);

}  // namespace drun
